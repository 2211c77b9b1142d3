"""What people run: the command line, and the bridge that joins specs, judge and runtime.

`cli.py` lists the commands; each lies in a module of its own name, imported when it is called.  `bridge.py` is the
one place where a call of the runtime becomes spec → bound → normal → text → library.
"""
