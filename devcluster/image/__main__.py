"""`python -m devcluster.image`: builds the images where needed and prints their names and archives."""

import signal
import sys
from types import FrameType

from devcluster.errors import DevclusterError
from devcluster.image.product import ensure_images

INTERRUPTED = 130


def main() -> int:
    """Build and print; hands back the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for image in ensure_images():
            print(image.name, image.archive)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (DevclusterError, OSError) as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
