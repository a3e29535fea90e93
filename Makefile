# ironroot: see `make help`. Everything a target needs is installed by scripts/prepare, which says what it installs.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# A go that is new enough, first on the PATH too: the image builder calls it again. Looked for only where it is used.
GOCMD = $(shell scripts/prepare go)
GO    = PATH="$(dir $(GOCMD)):$$PATH" go
BUILD   ?= build
IMAGE    = $(BUILD)/ipa-ironroot-amd64
# Of the demonstration: how the node boots, network or iso, and its architecture, amd64 or arm64.
BOOT    ?=
ARCH    ?= amd64
LINT     = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
MISSPELL = github.com/golangci/misspell/cmd/misspell@v0.8.0
DEADCODE = golang.org/x/tools/cmd/deadcode@v0.52.0
# MACHINES are the directories with tests that boot machines, with all of their tests, and the package that needs Java.
# UNIT are all others. Packages that take longest are the first; one that is named twice is tested once. At most -p
# packages run at a time, and -parallel tests in each, so the packages of lab/e2e run one after another beside
# lab/ironic.
MACHINES = ./lab/ironic ./lab/e2e/images ./lab/e2e/... ./lab/... ./uinit/... ./iso/... ./agent/hardware/burnin/tooz
UNIT     = ./storage/image ./agent/cleaning \
	$$(echo "$$all" | grep -v -E '^ironroot/((uinit|iso|lab)(/|$$)|agent/hardware/burnin/tooz$$)')
LIST_ALL = all=$$($(GO) list ./...)
# Tests of UNIT's packages that boot machines, build complete releases or repeat others with more seeds: make ci.
SLOW     = ./storage/raid ./cmd/ironroot ./initramfs ./storage/image ./storage/erase ./netboot/pxe
SLOW_RUN = '^(TestGuest|TestNetworkBoot|TestImageOCI|TestReproducibleImage|TestServerImage|TestDifferentialMore)$$'
# The tests of MACHINES that `make test` runs prove the main job, in as few machines as possible: UEFI and BIOS, network
# and virtual media; inspection, cleaning and deployment of disks, partitions and a mirror; rescue; and the life of a
# node with the Ironic of Debian stable.
CORE     = TestRealIronicLifecycle TestDemoBIOS TestRAIDBootUEFI TestAlone
empty   :=
CORE_RUN = '^($(subst $(empty) $(empty),|,$(CORE)))$$'
export CGO_ENABLED = 0
export GOFLAGS ?= -buildvcs=false
TEST_FLAGS ?=
# Prints a line for each package and, at the end, the output of failed tests and the reasons of skipped ones. make lint
# vets all packages.
GOTESTSUM = gotest.tools/gotestsum@v1.13.0
RESULTS   = $(BUILD)/tests
GOTEST    = mkdir -p $(RESULTS) && \
	$(GO) run $(GOTESTSUM) --format-icons text --jsonfile $(RESULTS)/$@.json -- -vet=off $(TEST_FLAGS)
RUN_TARGETS = +GO=$(GOCMD) GOTESTSUM=$(GOTESTSUM) RESULTS=$(RESULTS) scripts/run-targets
# Flags of `ironroot image`, `iso`, `uki` and `lock`, for example --locked, --offline, --suite NAME, --mirror URL.
ARCHIVE_FLAGS ?=

.PHONY: help
help: ## list the targets, with their durations on two processors without KVM
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: build
build: prepare-build ## kernel, initramfs, tarball and checksums into build/: 10 seconds, the first time 3 minutes
	$(GO) run ./cmd/ironroot image $(ARCHIVE_FLAGS) -o $(BUILD)

.PHONY: iso
iso: build ## build/ipa-ironroot-amd64.iso, for CD, virtual media and USB stick: seconds
	$(GO) run ./cmd/ironroot iso $(ARCHIVE_FLAGS) -k $(IMAGE).kernel -i $(IMAGE).initramfs -o $(IMAGE).iso

# A key of minisign that signs the release, and a file with its password: otherwise the terminal asks for it.
SIGN_KEY ?=
SIGN_PASSWORD ?=
SIGN     = $(if $(SIGN_KEY),--sign-key $(SIGN_KEY)) $(if $(SIGN_PASSWORD),--sign-password $(SIGN_PASSWORD))
RELEASE  = $(BUILD)/release
# Flags of `ironroot uki`, such as --key db.key --cert db.pem --cmdline "ipa-api-url=mdns": unified kernel images, too.
UKI_FLAGS ?=

.PHONY: release
release: prepare-build ## both architectures, ISOs, OCI layout; SIGN_KEY=FILE signs (docs/release.md): 10 minutes
	rm -rf $(RELEASE)
	$(GO) run ./cmd/ironroot image $(ARCHIVE_FLAGS) $(SIGN) --oci -o $(RELEASE)
	for arch in amd64 arm64; do \
		stem=$(RELEASE)/ipa-ironroot-$$arch; \
		$(GO) run ./cmd/ironroot iso $(ARCHIVE_FLAGS) $(SIGN) --arch $$arch \
			-k $$stem.kernel -i $$stem.initramfs -o $$stem.iso || exit 1; \
	done
	$(if $(UKI_FLAGS),for arch in amd64 arm64; do \
		stem=$(RELEASE)/ipa-ironroot-$$arch; \
		$(GO) run ./cmd/ironroot uki $(ARCHIVE_FLAGS) $(SIGN) $(UKI_FLAGS) \
			-k $$stem.kernel -i $$stem.initramfs -o $$stem.efi || exit 1; \
	done)

.PHONY: demo
demo: prepare-demo$(if $(filter arm64,$(ARCH)),-arm64) ## deploy a node in QEMU (BOOT=iso; ARCH=arm64): 2 minutes
	$(GO) run ./cmd/ironroot demo --arch $(ARCH) --boot "$(BOOT)" -o $(BUILD)

# Parts of `make test` and `make ci`, in the order in which they run. Each can be run alone.
TEST_PARTS = build test-unit test-core
CI_PARTS   = test lint test-slow test-machines

.PHONY: test
test: prepare-test ## unit tests, the main job in QEMU and with a real Ironic: 22 minutes
	$(RUN_TARGETS) $@ 'limit 15 minutes, 25 with empty caches (two cores, no KVM)' $(TEST_PARTS)

.PHONY: ci
ci: prepare-ci ## make test, make lint and all other machines: 1 hour
	$(RUN_TARGETS) $@ 'limit 40 minutes, 70 on a busy machine (two cores, no KVM)' $(CI_PARTS)

# Tests that allocate whole disks spend most of their time in the garbage collector without GOGC.
.PHONY: test-unit
test-unit: prepare-test ## tests of all packages but uinit, iso and lab, without slow ones: 13 minutes
	$(LIST_ALL) && export GOGC=400 && $(GOTEST) -p 3 -timeout 40m -skip $(SLOW_RUN) $(UNIT)

.PHONY: test-core test-slow test-machines
test-core: prepare-test build ## the machines of make test
	$(GOTEST) -count=1 -p 4 -parallel 2 -timeout 80m -run $(CORE_RUN) $(MACHINES)
test-slow: prepare-ci ## tests that boot machines or build releases, of packages that test-unit tests: 4 minutes
	$(GOTEST) -count=1 -p 3 -timeout 40m -run $(SLOW_RUN) $(SLOW)
test-machines: prepare-ci build ## the other machines
	$(GOTEST) -count=1 -p 2 -parallel 2 -timeout 80m -skip $(CORE_RUN) $(MACHINES)

.PHONY: test-race
test-race: prepare-race ## test-unit with the race detector (cgo, with the resolver of Go): 15 minutes
	$(LIST_ALL) && CGO_ENABLED=1 $(GO) test -race -tags netgo,osusergo $(TEST_FLAGS) -timeout 60m \
		-skip $(SLOW_RUN) $(UNIT)

# Records the scenarios that are new or have changed: of one group with ONLY=GROUP, otherwise of all; see
# lab/conformance. A group whose file in testdata/ipa was deleted is recorded completely.
.PHONY: record-ipa
record-ipa: prepare-ci ## record ironic-python-agent into testdata/ipa: 3 to 40 minutes for a group (ONLY=GROUP)
	IRONROOT_RECORD_IPA="$(or $(ONLY),all)" $(GO) test -tags long -count=1 -timeout 6h -v -run '^TestRecordIPA$$' \
		./lab/conformance

# Tests with the build tag long, each a target of its own: one that fails does not end the others. Those that take
# longest are the first.
LONG_IRONIC = MixedFleet Newest Releases Metal3 Progress FastTrack Metal3Media Array Bootc BIOS HTTPBoot SecureBoot
LONG = $(LONG_IRONIC:%=long-ironic-%) long-conformance long-firmware long-bootloader long-iscsi long-arm64 \
	long-chroots long-undionly

.PHONY: test-long $(LONG)
test-long: prepare-ci build ## other releases, RAID, BIOS, bootc, UKI, fast track, Metal3, IPA: hours
	$(MAKE) --no-print-directory -k -j 2 $(LONG)
$(LONG): LONG_TEST = CI=true $(GO) test $(TEST_FLAGS) -tags long -count=1 -timeout 120m
$(LONG_IRONIC:%=long-ironic-%): long-ironic-%:
	$(LONG_TEST) -run '^TestRealIronic$*$$' ./lab/ironic
# All recorded scenarios with ironic-python-agent, one group after another.
long-conformance: LONG_TEST = CI=true $(GO) test $(TEST_FLAGS) -tags long -count=1 -timeout 6h
long-conformance:
	$(LONG_TEST) -run '^(TestConformance|TestRecordIPA|TestInjectedFaults)$$' ./lab/conformance
long-firmware:
	$(LONG_TEST) -run '^(TestNetbootProxy|TestSignedImage|TestUKI)' ./lab/e2e/firmware
long-bootloader:
	$(LONG_TEST) -run '^TestRAIDBoot(BIOS|PartitionUEFI)$$' ./lab/e2e/bootloader
long-iscsi:
	$(LONG_TEST) -run '^TestLegacyISCSI$$' ./lab/e2e/iscsi
long-arm64:
	$(LONG_TEST) -run '^TestDemoARM$$' ./lab/demo
long-chroots:
	$(LONG_TEST) -run '^TestChroots$$' ./initramfs
long-undionly:
	$(LONG_TEST) -run '^TestUndionly$$' ./netboot/pxe

.PHONY: lock
lock: prepare-build ## pin the newest versions of Debian's packages in the lock file: seconds
	$(GO) run ./cmd/ironroot lock $(ARCHIVE_FLAGS)

.PHONY: quick
quick: prepare-build ## format, linters and tests of the packages that differ from BASE: 1 to 3 minutes
	@PATH="$(dir $(GOCMD)):$$PATH" scripts/quick $(LINT) $(SLOW_RUN) $(BASE)

.PHONY: lint
lint: prepare-build ## vet, linters, unused functions, the rules of this project: 3 minutes
	$(GO) vet -tags long ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	$(GO) run $(LINT) run
	$(GO) run $(MISSPELL) -error README.md CONTRIBUTING.md Makefile docs scripts
	$(GO) run ./internal/tools/lint agent storage netboot uinit
	PATH="$(dir $(GOCMD)):$$PATH" scripts/unused $(DEADCODE)

.PHONY: bench
bench: prepare-test build ## first heartbeat, images, erasing, RAID, each with an alternative or a limit: 1 hour
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./lab/bench/...

.PHONY: fuzz
fuzz: prepare-build ## every fuzz target for FUZZTIME (default 1m) each: 2 hours
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-1m} -fuzzminimizetime 10x $$package || exit 1; \
		done; done

.PHONY: docs
docs: ## regenerate docs/configuration.md and the generated parts of other documents: seconds
	$(GO) run ./internal/tools/docs

.PHONY: clean
clean: ## remove build/ (caches stay in ~/.cache/ironroot): seconds
	rm -rf $(BUILD)

.PHONY: prepare-build prepare-demo prepare-demo-arm64 prepare-test prepare-ci prepare-race
prepare-build prepare-demo prepare-demo-arm64 prepare-test prepare-ci prepare-race: prepare-%:
	@scripts/prepare $*

# Flags of internal/tools/repeat, for example -run '^./netboot/', -fresh or -idle.
REPEAT ?=

.PHONY: repeat
repeat: prepare-ci build ## do tests pass 3 or 10 times on busy processors? It resumes (build/repeat): a day
	$(GO) run ./internal/tools/repeat $(REPEAT)
