# make try     the main job on an emulated host, step by step (root; Debian 12/13 or Ubuntu)
# make test    every test, from a clean clone; the last line is: N passed, N failed, N skipped
# make test-real   the tests on a real host (Debian 13 under QEMU): the root is built once, 2 GB in ~/.cache
# make check   ruff and mypy --strict
# make crash   every operation interrupted at every step and commit, by a kill and by a power loss (hours; ARGS=--help)
# make soak    random work, faults and restarts on emulated hosts: make soak SECONDS=1200
# make bench   how long attach and detach take, and which part of it is the kernel's own

PY = .venv/bin/python
WORKERS ?= 2
SECONDS ?= 1200

.PHONY: try test test-real check crash soak bench

try:
	@sh scripts/setup.sh lab
	@$(PY) scripts/try/demo.py

test:
	@sh scripts/setup.sh lab,dev
	@$(PY) scripts/test.py -n $(WORKERS) --dist loadfile $(TESTS)

test-real:
	@sh scripts/setup.sh lab,dev
	@command -v mmdebstrap >/dev/null || apt-get -qq install --yes --no-install-recommends mmdebstrap >/dev/null
	@LINKWRIGHT_REAL=1 $(PY) scripts/test.py tests/real

check:
	@sh scripts/setup.sh lab,dev
	@$(PY) -m ruff check .
	@$(PY) -m mypy

crash:
	@sh scripts/setup.sh lab,dev
	@$(PY) scripts/crash.py $(ARGS)

soak:
	@sh scripts/setup.sh lab,dev
	@$(PY) scripts/soak.py --seconds $(SECONDS) $(ARGS)

bench:
	@sh scripts/setup.sh lab
	@$(PY) benchmarks/attach.py
