// Runs the code of a row of README's client table, with the names of a client's library.
'use strict';

// Runs all lines but the last, and returns the value of the last.
function evaluate(code, names) {
  const lines = code.split('\n');
  const last = lines.pop();
  return new Function(...Object.keys(names), `${lines.join('\n')}\nreturn ${last}`)(...Object.values(names));
}

module.exports = { evaluate };
