"""Takes pictures with a headless Chromium."""

import pathlib
import subprocess
import tempfile


def photograph(address: str, picture: pathlib.Path, width: int, height: int) -> None:
    """Saves what a browser shows at an address."""
    with tempfile.TemporaryDirectory(prefix="feedfleet-browser-") as profile:
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
             # A page with a live stream never finishes loading.
             "--timeout=4000", f"--window-size={width},{height}", f"--screenshot={picture}", address],
            check=True, capture_output=True, timeout=60,
        )
