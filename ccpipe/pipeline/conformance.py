"""Whether a part implements its interface: checked when it is built, before it carries anything.

A misspelt ``write`` would otherwise acknowledge records that nothing has stored.
"""

import inspect

OPTIONAL = ("__aenter__", "__aexit__", "check", "commit")
"""Methods with a default, which a part may override."""
RECORD_TYPES = ("takes", "gives", "records")
"""Attributes that declare a type of records, where the interface annotates them."""


def fault_of(part: object, interface: type[object]) -> str:
    """Return what is wrong with a part, or with its class before that is built; empty if nothing.

    A part needs no base class if its interface is a protocol.
    """
    cls = part if isinstance(part, type) else type(part)
    name = interface.__name__
    is_protocol = getattr(interface, "_is_protocol", False)
    if not is_protocol and not issubclass(cls, interface):
        return f"it must be derived from {name}"
    required = sorted(getattr(interface, "__abstractmethods__", ()))
    if missing := [method for method in required if _is_missing(getattr(part, method, None))]:
        return f"it has no method {' and no '.join(missing)}, which every {name} needs"
    for method in (*required, *OPTIONAL):
        declared = getattr(interface, method, None)
        if declared is not None and (kind := _mismatch(declared, getattr(part, method))):
            return f"its method {method} must be {kind}"
    return "" if part is cls else _type_fault(part, interface)


def _is_missing(method: object) -> bool:
    return not callable(method) or getattr(method, "__isabstractmethod__", False)


def _mismatch(declared: object, method: object) -> str:
    """Return what a method must be, if calling it as declared would fail; else nothing."""
    is_async = inspect.iscoroutinefunction(method)
    if inspect.iscoroutinefunction(declared):
        return "" if is_async else "an async def without yield"
    if getattr(declared, "__name__", "") == "batches":
        return "an async def that yields batches" if is_async else ""
    return "a def, not an async def" if is_async or inspect.isasyncgenfunction(method) else ""


def _type_fault(part: object, interface: type[object]) -> str:
    """Return which type of records a part does not declare."""
    annotated = {name for cls in interface.__mro__ for name in inspect.get_annotations(cls)}
    for name in annotated.intersection(RECORD_TYPES):
        kind = getattr(part, name, None)
        if not (isinstance(kind, type) and all(hasattr(kind, each) for each in ("name", "concat"))):
            found = f"is {kind!r:.80}" if hasattr(part, name) else "is missing"
            return f"its attribute {name} {found}; expected a type of records, such as Lines"
    return ""
