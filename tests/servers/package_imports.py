"""Makes a server's package importable without the libraries of its models."""

import importlib.abc
import importlib.machinery
import logging
import os
import sys
import types

class _AbsentClass(type):
    """A class that takes any arguments, and has any attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(name)

    def __call__(cls, *args, **kwargs):
        # A class of the server that derives from an absent one is made as usual.
        return object.__new__(cls) if cls.__mro__[1:] == (object,) else super().__call__(*args, **kwargs)


def _absent(name):
    # Made with arguments, it may be a decorator.
    return _AbsentClass(name, (), {"__call__": lambda _, decorated: decorated})


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # The same class each time, so that `isinstance` holds.
        made = _absent(name)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == absent or name.startswith(absent + ".") for absent in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _AbsentModule(spec.name)

    def exec_module(self, module):
        module.init_logger = logging.getLogger


def stand_in(*names):
    """Makes every import of these modules, and of what is in them, succeed."""
    sys.meta_path.insert(0, _Finder(names))


def without_init(*names):
    """Makes packages importable without running their `__init__`, which imports what the server's other parts need."""
    top = names[0].partition(".")[0]
    root = next(path for path in sys.path if os.path.isdir(f"{path}/{top}"))
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        sys.modules[name] = package
