"""Print the text of a page, as Chromium shows it: ``python -m tests.site.look URL TEXT PICTURE``.

It waits until the page has the text, and takes a picture. A program of its own, because it runs in
other namespaces than the test.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.conftest import program
from tests.dashboard.browser import chromium


async def look(url: str, text: str, picture: Path) -> None:
    async with chromium(program("chromium", "chromium")) as page:
        await page.size(1280, 800)
        await page.open(url)
        await page.until(f"document.body?.innerText.includes({json.dumps(text)})")
        await page.screenshot(picture)
        print(await page.text())
        assert not page.problems, page.problems


if __name__ == "__main__":
    asyncio.run(look(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
