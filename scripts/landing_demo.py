"""A repository with the branches of ten agents, for `make demo DEMO=landing` and the guide to the merge queue.

The agents are real runs in copies of their own; what they write comes from a script instead of a language model.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECK = "python3 -m unittest -q"
RATES = "RATES = {\n    'book': 7,\n}\n"
BASE = {
    "shop/__init__.py": "",
    "shop/rates.py": RATES,
    "shop/tax.py": "from shop.rates import RATES\n\n\ndef tax(kind, price):\n    return price * RATES[kind] // 100\n",
    "tests/__init__.py": "",
    "tests/test_tax.py": "import unittest\n\nfrom shop import tax\n\n\nclass TaxTest(unittest.TestCase):\n"
    "    def test_book(self):\n        function = getattr(tax, 'tax', None) or tax.find_tax\n"
    "        self.assertEqual(function('book', 100), 7)\n",
    ".gitignore": "__pycache__/\n",
    ".pi/subagents.json": json.dumps({"landing": {"verify": CHECK, "maxAttempts": 1}}) + "\n",
}
GOODS = ("tea", "coffee", "bread", "milk", "wine")
RENAMED = BASE["shop/tax.py"].replace("def tax", "def find_tax")


def write_caller(name: str) -> dict[str, str]:
    """Return a module that uses the function `name`, and its test."""
    test = "import unittest\n\nfrom shop.receipt import render\n\n\nclass ReceiptTest(unittest.TestCase):\n"
    test += "    def test_total(self):\n        self.assertEqual(render('book', 100), '107')\n"
    code = f"from shop import tax\n\n\ndef render(kind, price):\n    return str(price + tax.{name}(kind, price))\n"
    return {"shop/receipt.py": code, "tests/test_receipt.py": test}


def write_rates(*names: str) -> dict[str, str]:
    lines = "".join(f"    {name!r}: 19,\n" for name in names)
    return {"shop/rates.py": RATES.replace("}", f"{lines}}}")}


WORK: list[tuple[str, dict[str, str], dict[str, str]]] = [
    *((f"add {name}", {f"shop/{name}.py": f"PRICE = {len(name)}\n"}, {}) for name in GOODS),
    ("tax radios", write_rates("radio"), write_rates("radio", "car")),
    ("tax cars", write_rates("car"), write_rates("radio", "car")),
    ("rename tax to find_tax", {"shop/tax.py": RENAMED}, write_caller("find_tax")),
    ("print receipts", write_caller("tax"), write_caller("find_tax")),
    ("round prices", {"tests/test_round.py": BASE["tests/test_tax.py"].replace("7)", "8)")}, {}),
]
"""For each agent: its task, the files it writes, and those with which it answers a conflict or a failed check."""


def write_files(files: dict[str, str]) -> dict[str, Any]:
    return {"calls": [{"name": "write", "arguments": {"path": p, "content": c}} for p, c in files.items()]}


def make_script() -> list[dict[str, Any]]:
    asked = {"subagent_type": "general-purpose", "isolation": "worktree"}
    calls = [
        {"name": "Agent", "arguments": {**asked, "prompt": f"{task}.", "description": task}} for task, _, _ in WORK
    ]
    begin, thanks = {"last_user": "^begin"}, {"last_user": "Changes saved"}
    replies = [{"match": begin, "calls": calls}, {"match": begin, "text": "Ten agents work."}]
    replies.append({"match": thanks, "text": "They are done."})
    for task, files, repair in WORK:
        first, again = {"last_user": f"^{task}\\."}, {"last_user": "could not land", "first_user": f"^{task}\\."}
        replies += [{"match": first, **write_files(files)}, {"match": first, "text": "Done."}]
        replies += [{"match": again, **write_files(repair)}] if repair else []
        replies.append({"match": again, "text": "Repaired." if repair else "I see no mistake."})
    return replies


def main(place: Path) -> None:
    """Create the repository in a new folder and let the agents work."""
    shutil.rmtree(place, ignore_errors=True)
    for path, content in BASE.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content)
    script = place.with_name(f"{place.name}-script.json")
    script.write_text(json.dumps({"replies": make_script()}))
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*person, "commit", "-q", "-m", "A shop")):
        subprocess.run(["git", *words], cwd=place, check=True)
    words = [sys.executable, "-m", "retinue", "-p", "--model", f"scripted/{script}", "begin"]
    subprocess.run(words, cwd=place, env={**os.environ, "PI_OFFLINE": "1"}, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
