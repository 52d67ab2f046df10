"""Kernels: functions that numba compiles when they are first called, or that run as plain Python.

Numba takes ten seconds and more to compile a method on a fresh machine, whatever the size of the table, and half a
second to be loaded. So it is loaded with the first call of a kernel, and where the table is small a kernel is not
compiled: `plain` returns it as plain Python, with its loops over rows, which Python is slow at, as array operations.
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
    """A function that numba compiles on its first call, and keeps on disk; see `kernel`."""

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        self.function, self._options = function, options
        self._compiled: Any = None
        self.__doc__ = function.__doc__

    @property
    def compiled(self) -> Any:
        """What numba makes of it."""
        with _compiling:  # threads share what one of them has compiled
            if self._compiled is None:
                from numba import njit

                _listen()
                # Nobody calls it from C: without a wrapper for that it is compiled in a tenth less time.
                options = {"cache": True, "nogil": True, "no_cfunc_wrapper": True} | self._options
                self._compiled = njit(**options)(self.function)
        return self._compiled

    def __call__(self, *args: Any) -> Any:
        """Run it, compiled."""
        return (self._compiled or self.compiled)(*args)

    @property
    def _numba_type_(self) -> Any:  # so that other kernels can call it
        return self.compiled._numba_type_


def announce(tell: Callable[[], None]) -> None:
    """Set what is called, once, before numba compiles something that it has not kept on disk."""
    _tell[:] = [tell]


def _listen() -> None:
    """Wait for the first compilation, if somebody wants to know of it."""
    from numba.core import event  # which has no types

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
    """Make a function a kernel.

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
    instead : what is called, by its name, in place of a kernel
    """
    function = one.function
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if name in instead:
            names[name] = instead[name]
        elif isinstance(names.get(name), Kernel):
            names[name] = plain(names[name], **instead)
    return FunctionType(function.__code__, names, function.__name__)
