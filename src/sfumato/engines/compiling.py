"""Kernels: functions that numba compiles on their first call, or that run as plain Python.

On a fresh machine, numba takes ten seconds or more to compile a method, whatever the size of the table, and half a
second to import. So it is imported with the first call of a kernel, and for small tables a kernel is not compiled:
`plain` returns it as plain Python, with array operations in place of the loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import FunctionType
from typing import Any

__all__ = ["Kernel", "announce", "kernel", "plain"]

_compiling = Lock()
_tell: list[Callable[[], None]] = []


class Kernel:
    """A function that numba compiles on its first call and caches on disk; see `kernel`."""

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        self.function, self._options = function, options
        self._inner = function.__name__.startswith("_")
        self._compiled: Any = None
        self.__doc__ = function.__doc__

    @property
    def compiled(self) -> Any:
        """The compiled function."""
        with _compiling:  # threads share one compilation
            if self._compiled is None:
                from numba import njit

                _listen()
                # Without the wrappers that are never called, compiling takes a quarter less time.
                options = {"cache": True, "nogil": True, "no_cfunc_wrapper": True} | self._options
                options["no_cpython_wrapper"] = self._inner
                self._compiled = njit(**options)(self.function)
        return self._compiled

    def __call__(self, *args: Any) -> Any:
        """Run the compiled function."""
        if self._inner:
            raise TypeError(f"'{self.function.__name__}' is called by other kernels only: its name has an underscore")
        return (self._compiled or self.compiled)(*args)

    @property
    def _numba_type_(self) -> Any:  # lets other kernels call it
        return self.compiled._numba_type_


def announce(tell: Callable[[], None]) -> None:
    """Set a callback for the first compilation that is not cached on disk."""
    _tell[:] = [tell]


def _listen() -> None:
    """Register the callback for the first compilation, if there is one."""
    from numba.core import event

    if not _tell:
        return
    tell = _tell.pop()

    class First(event.Listener):
        def on_start(self, event_: Any) -> None:
            event.unregister("numba:compile", self)  # type: ignore[no-untyped-call]
            tell()

        def on_end(self, event_: Any) -> None:
            pass

    event.register("numba:compile", First())  # type: ignore[no-untyped-call]


def kernel(**options: Any) -> Callable[[Any], Kernel]:
    """Decorate a function as a kernel.

    One whose name begins with an underscore can be called by other kernels only: it compiles faster.

    Parameters
    ----------
    options : more options of ``numba.njit``

    Examples
    --------
    >>> @kernel(error_model="numpy")
    ... def halves(number):
    ...     steps = 0
    ...     while number > 1:
    ...         number, steps = number // 2, steps + 1
    ...     return steps
    >>> plain(halves)(1000)
    9
    """
    return lambda function: Kernel(function, options)


def plain(one: Kernel, **instead: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel, and the kernels that it calls, as plain Python.

    Parameters
    ----------
    one : Kernel
    instead : functions that replace kernels, by name
    """
    function = one.function
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if name in instead:
            names[name] = instead[name]
        elif isinstance(names.get(name), Kernel):
            names[name] = plain(names[name], **instead)
    return FunctionType(function.__code__, names, function.__name__)
