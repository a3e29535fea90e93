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
# Tests that boot machines run after all others. ./lab/e2e takes longer than the other packages, REST, together, so its
# tests of arrays are a part of their own. Each part runs one test at a time, and some of them wait for leases and
# restarts, so three parts keep two processors busy.
REST     = ./uinit/... ./iso/... $$($(GO) list ./lab/... | grep -v -E '^ironroot/lab/e2e$$')
ARRAYS   = '^TestRAID'
# All others. Those that take longest are the first; a package that is named twice is tested once.
UNIT     = ./storage/raid ./storage/image ./agent/hardware/generic ./storage/erase \
	$$($(GO) list ./... | grep -v -E '^ironroot/(uinit|iso|lab)(/|$$)')
export CGO_ENABLED = 0
export GOFLAGS ?= -buildvcs=false
TEST_FLAGS ?=
# Flags of `ironroot image` and `ironroot iso`, for example --locked, --offline, --suite NAME, --mirror URL.
ARCHIVE_FLAGS ?=

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: build
build: prepare-build ## kernel, initramfs, tarball and checksums into build/
	$(GO) run . image $(ARCHIVE_FLAGS) -o $(BUILD)

.PHONY: iso
iso: build ## build/ipa-ironroot-amd64.iso, for CD, virtual media and USB stick
	$(GO) run . iso $(ARCHIVE_FLAGS) -k $(IMAGE).kernel -i $(IMAGE).initramfs -o $(IMAGE).iso

# A key of minisign that signs the release, and a file with its password: otherwise the terminal asks for it.
SIGN_KEY ?=
SIGN_PASSWORD ?=
SIGN     = $(if $(SIGN_KEY),--sign-key $(SIGN_KEY)) $(if $(SIGN_PASSWORD),--sign-password $(SIGN_PASSWORD))
RELEASE  = $(BUILD)/release
# Flags of `ironroot uki`, such as --key db.key --cert db.pem --cmdline "ipa-api-url=mdns": unified kernel images, too.
UKI_FLAGS ?=

.PHONY: release
release: prepare-build ## build/release: both architectures, ISOs, OCI layout; SIGN_KEY=FILE signs (docs/release.md)
	rm -rf $(RELEASE)
	$(GO) run . image $(ARCHIVE_FLAGS) $(SIGN) --oci -o $(RELEASE)
	for arch in amd64 arm64; do \
		stem=$(RELEASE)/ipa-ironroot-$$arch; \
		$(GO) run . iso $(ARCHIVE_FLAGS) $(SIGN) --arch $$arch -k $$stem.kernel -i $$stem.initramfs -o $$stem.iso || \
			exit 1; \
	done
	$(if $(UKI_FLAGS),for arch in amd64 arm64; do \
		stem=$(RELEASE)/ipa-ironroot-$$arch; \
		$(GO) run . uki $(ARCHIVE_FLAGS) $(SIGN) $(UKI_FLAGS) -k $$stem.kernel -i $$stem.initramfs -o $$stem.efi || \
			exit 1; \
	done)

.PHONY: demo
demo: prepare-demo$(if $(filter arm64,$(ARCH)),-arm64) ## a node in QEMU: inspect, clean, deploy (BOOT=iso; ARCH=arm64)
	$(GO) run . demo --arch $(ARCH) --boot "$(BOOT)" -o $(BUILD)

.PHONY: test
test: prepare-test lint test-unit test-machines ## lint, unit tests, loop devices, QEMU, a real Ironic

.PHONY: test-unit
test-unit: prepare-test
	$(GO) test $(TEST_FLAGS) -p 3 -timeout 40m $(UNIT)

.PHONY: test-race
test-race: prepare-race ## the tests that boot no machine, with the race detector (cgo, with the resolver of Go)
	CGO_ENABLED=1 $(GO) test -race -tags netgo,osusergo $(TEST_FLAGS) -timeout 60m $(UNIT)

.PHONY: test-machines machines-e2e machines-arrays machines-rest
test-machines: build
	$(MAKE) --no-print-directory -k -j 3 machines-e2e machines-arrays machines-rest
machines-e2e machines-arrays machines-rest: TEST_MACHINES = $(GO) test $(TEST_FLAGS) -count=1 -p 1 -timeout 80m
machines-e2e:
	$(TEST_MACHINES) -skip $(ARRAYS) ./lab/e2e
machines-arrays:
	$(TEST_MACHINES) -run $(ARRAYS) ./lab/e2e
machines-rest:
	$(TEST_MACHINES) $(REST)

# Tests with the build tag long, each a target of its own: one that fails does not end the others. Those that take
# longest are the first.
LONG_IRONIC = MixedFleet Releases Metal3 Progress FastTrack Metal3Media Array Bootc BIOS HTTPBoot SecureBoot
LONG = $(LONG_IRONIC:%=long-ironic-%) long-e2e long-iscsi long-arm64 long-chroots long-undionly

.PHONY: test-long $(LONG)
test-long: prepare-test build ## tests that take long: other releases, RAID, BIOS, bootc, UKI, fast track, Metal3
	$(MAKE) --no-print-directory -k -j 2 $(LONG)
$(LONG): LONG_TEST = CI=true $(GO) test $(TEST_FLAGS) -tags long -count=1 -timeout 120m
$(LONG_IRONIC:%=long-ironic-%): long-ironic-%:
	$(LONG_TEST) -run '^TestRealIronic$*$$' ./lab/ironic
long-e2e:
	$(LONG_TEST) -run '^(TestRAIDBoot(BIOS|PartitionUEFI)|TestNetbootProxy|TestSignedImage|TestUKI)' ./lab/e2e
long-iscsi:
	$(LONG_TEST) -run '^TestLegacyISCSI$$' ./lab/e2e
long-arm64:
	$(LONG_TEST) -run '^TestDemoARM$$' ./lab/demo
long-chroots:
	$(LONG_TEST) -run '^TestChroots$$' ./initramfs
long-undionly:
	$(LONG_TEST) -run '^TestUndionly$$' ./netboot/pxe

.PHONY: lock
lock: prepare-build ## pin the newest versions of Debian's packages in the lock file
	$(GO) run . lock $(ARCHIVE_FLAGS)

.PHONY: lint
lint: prepare-build
	$(GO) vet -tags long ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	$(GO) run $(LINT) run
	$(GO) run $(MISSPELL) -error README.md CONTRIBUTING.md Makefile docs scripts
	$(GO) run ./internal/lint agent storage netboot uinit
	PATH="$(dir $(GOCMD)):$$PATH" scripts/unused $(DEADCODE)

.PHONY: bench
bench: prepare-test build ## figures: first heartbeat, images, erasing, RAID, each with an alternative or a limit
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./lab/bench/...

.PHONY: fuzz
fuzz: prepare-build ## every fuzz target for FUZZTIME (default 1m) each
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-1m} -fuzzminimizetime 10x $$package || exit 1; \
		done; done

# Packages on the way to a disk: each survivor there is listed as equivalent or untestable, with the reason.
ACCOUNTED = storage/erase,storage/partition,storage/hint,agent/hardware/generic,agent/imaging,internal/timelimit
# The others are agents and servers that strangers can reach, logins and passwords, what parses media that a BMC
# attached or tables of the firmware, and what is signed. ./uinit/boot is not among them: its mutants would write to
# the kernel's settings and log, which the sandbox cannot hide, and its tests boot machines. The tests of ./netboot/pxe
# take half a minute for each mutant.
MUTATED   = ./storage/erase ./storage/partition ./storage/hint ./storage/target ./storage/iso9660 \
	./storage/nfit ./storage/removable ./agent/... ./internal/password \
	./uinit/account ./uinit/login ./uinit/sshd ./uinit/sudo ./uinit/worker ./netboot/server \
	./uki ./release/... ./watch ./internal/bounded ./internal/sysfs ./internal/timelimit
# Tests that boot virtual machines take minutes for each mutant. The sandbox has no network to fetch Debian's ukify.
UNMUTATED = '^(TestMachine|TestImageEqualsUkify)$$'

.PHONY: mutations
mutations: prepare-test ## do tests notice a changed statement? As root; MUTATIONS=N of each package (default all)
	$(GO) run ./internal/mutate -n $${MUTATIONS:-0} -skip $(UNMUTATED) -accounted $(ACCOUNTED) $(MUTATED)

.PHONY: docs
docs: ## regenerate docs/configuration.md and the generated parts of other documents
	$(GO) run ./internal/docs

.PHONY: clean
clean: ## remove build/ (caches stay in ~/.cache/ironroot)
	rm -rf $(BUILD)

.PHONY: prepare-build prepare-demo prepare-demo-arm64 prepare-test prepare-race
prepare-build prepare-demo prepare-demo-arm64 prepare-test prepare-race: prepare-%:
	@scripts/prepare $*
