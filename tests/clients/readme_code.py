"""Runs the code of a row of README's client table, with the names of a client's library."""


def evaluate(code, **names):
    """Runs all lines but the last, and returns the value of the last."""
    *statements, last = code.splitlines()
    for statement in statements:
        exec(statement, names)
    return eval(last, names)


def keywords(code):
    """The keyword arguments that a row shows."""
    return evaluate(f"dict({code})")
