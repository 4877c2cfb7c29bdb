#!/usr/bin/env bash
# The tests of which ./scripts/test.sh runs a shorter form: kernels of every shipped number of columns and heads, signals
# and kills at more moments. Arguments go to pytest.
"$(dirname "${BASH_SOURCE[0]}")/test.sh" -m long "$@"
