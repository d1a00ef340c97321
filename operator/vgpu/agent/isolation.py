"""Can containers on this node be held to their share of a card?

The library's path enters, a text leaves: "" for yes. Nothing else is looked at.
"""

from pathlib import Path


def library_fault(library: str) -> str:
    """Why HAMi-core's library cannot be mounted into containers; "" when it can, or when none is wanted."""
    if not library:
        return ""
    try:
        size_bytes = Path(library).stat().st_size if Path(library).is_file() else None
    except OSError as error:
        return f"the isolation library {library} cannot be looked at ({error.strerror})"
    if size_bytes:
        return ""
    found = "is not on this node" if size_bytes is None else "is empty"
    return (
        f"the isolation library {library} {found}; put it there, or name by isolationLibrary where it is and "
        'mount that into the agent, or set isolationLibrary: "" to have nobody held to limits'
    )
