#!/usr/bin/env bash
# Build the site in strict mode: a broken link is an error. Where chromium is installed, open every page in it.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
.venv/bin/python scripts/build_site.py --out "${1:-site}"
if command -v chromium > /dev/null; then
    .venv/bin/python scripts/check_site.py "${1:-site}"
fi
