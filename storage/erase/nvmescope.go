package erase

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nvmeScope describes which namespaces belong to the NVM subsystem of a namespace (NVM Express base specification 2.0,
// 5.17 and 8.11). Block devices do not show unattached namespaces or those of other controllers.
type nvmeScope struct {
	nsid       uint32   // of the namespace to erase
	unknown    error    // why the other fields are incomplete
	managed    bool     // the controller manages namespaces, so a private subsystem can have unattached ones
	shared     bool     // other controllers may reach the subsystem or the namespace
	listed     bool     // unattached was read; controllers without namespace management have no such list
	others     []uint32 // all known namespaces except the one to erase
	unattached []uint32 // those of others that are not attached to the controller

	lockUnknown bool // the drive does not say whether it is locked, see checkLocked
}

const (
	oacsNamespaceManagement = 1 << 3
	version12               = 0x00010200
	maxSequential           = 4096    // namespaces that are identified one by one
	maxListed               = 1 << 16 // namespaces in a list
)

// identifyAll reads the data of the controller and of the device's namespace, and determines the scope. If the scope
// is not known, the data of the namespace are nil, and those of the controller if they could not be read.
func identifyAll(ctx context.Context, d adminDevice) (controller, namespace []byte, scope nvmeScope) {
	nsid, err := d.namespace()
	if err != nil {
		return nil, nil, nvmeScope{unknown: fmt.Errorf("NVMe namespace id: %w", err)}
	}
	if controller, err = identify(ctx, d, identifyController, 0); err == nil {
		namespace, err = identify(ctx, d, identifyNamespace, nsid)
	}
	if err == nil {
		shared := sharedSubsystem(controller) || sharedNamespace(namespace)
		scope, err = readScope(ctx, d, nsid, controller, shared)
	}
	if err != nil {
		scope.unknown = err
		return controller, nil, scope
	}
	return controller, namespace, scope
}

// sharedSubsystem reports whether other controllers may reach the subsystem (CMIC: further ports and controllers,
// SR-IOV and asymmetric access).
func sharedSubsystem(controller []byte) bool { return controller[76]&0x0f != 0 }

// sharedNamespace reports whether the namespace can be attached to several controllers (NMIC bit 0).
func sharedNamespace(namespace []byte) bool { return namespace[30]&1 != 0 }

// readScope reads the scope from the controller. nsid is 0 for a controller without a namespace to erase. OACS bit 3
// is set if the controller manages namespaces; otherwise it has no list of allocated ones. With an error, shared and
// managed are valid.
func readScope(ctx context.Context, d adminDevice, nsid uint32, controller []byte, shared bool) (nvmeScope, error) {
	scope := nvmeScope{
		nsid: nsid, shared: shared,
		managed: binary.LittleEndian.Uint16(controller[256:])&oacsNamespaceManagement != 0,
	}
	active, err := activeNamespaces(ctx, d, controller)
	if err != nil {
		return scope, err
	}
	all := active
	if scope.managed {
		allocated, err := listNamespaces(ctx, d, identifyAllocated)
		if err != nil {
			return scope, err
		}
		all = slices.Concat(active, allocated) // sorted below, unlike active
		scope.listed = true
	}
	slices.Sort(all)
	for _, id := range slices.Compact(all) {
		if id == nsid {
			continue
		}
		scope.others = append(scope.others, id)
		if !slices.Contains(active, id) {
			scope.unattached = append(scope.unattached, id)
		}
	}
	return scope, nil
}

// activeNamespaces lists the namespaces attached to the controller. NVMe 1.1 introduced the list (CNS 02h), NVMe 1.2
// the version field (VER). On controllers before 1.2, every namespace up to the highest number (NN) is identified; a
// capacity of zero means that it does not exist.
func activeNamespaces(ctx context.Context, d adminDevice, controller []byte) ([]uint32, error) {
	if binary.LittleEndian.Uint32(controller[80:]) >= version12 {
		return listNamespaces(ctx, d, identifyActive)
	}
	highest := binary.LittleEndian.Uint32(controller[516:])
	if highest > maxSequential {
		return nil, fmt.Errorf("NVMe controller without a list of namespaces: got %d namespaces, want at most %d",
			highest, maxSequential)
	}
	var active []uint32
	for id := uint32(1); id <= highest; id++ {
		namespace, err := identify(ctx, d, identifyNamespace, id)
		if err != nil {
			return nil, fmt.Errorf("namespace %d: %w", id, err)
		}
		if binary.LittleEndian.Uint64(namespace) != 0 {
			active = append(active, id)
		}
	}
	return active, nil
}

// listNamespaces reads a list of namespace ids in ascending order. Each command returns up to 1,024 ids; a zero ends
// the list.
func listNamespaces(ctx context.Context, d adminDevice, structure uint32) ([]uint32, error) {
	var list []uint32
	for last := uint32(0); ; {
		page, err := identify(ctx, d, structure, last)
		if err != nil {
			return nil, err
		}
		for ; len(page) > 0; page = page[4:] {
			id := binary.LittleEndian.Uint32(page)
			if id == 0 {
				return list, nil
			}
			if id <= last {
				return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): namespace %d listed after %d", structure, id, last)
			}
			list, last = append(list, id), id
		}
		if len(list) >= maxListed {
			return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): got %d namespaces, want fewer than %d",
				structure, len(list), maxListed)
		}
	}
}

// namespaces describes the namespaces that an erase of this one does not reach.
func (s nvmeScope) namespaces() Namespaces {
	attached := slices.DeleteFunc(slices.Clone(s.others), func(id uint32) bool {
		return slices.Contains(s.unattached, id)
	})
	return Namespaces{
		Attached: attached, Unattached: s.unattached, Shared: s.shared, Listed: s.listed, Unknown: s.unknown,
	}
}

// remains returns an error that wraps ErrRemains if a private subsystem has unattached namespaces, or may have unknown
// ones. done is what was done to the namespace itself.
func (s nvmeScope) remains(done string) error {
	if !s.shared && s.managed && s.unknown != nil {
		return fmt.Errorf(
			"%w: namespaces not attached to the NVMe controller cannot be listed (this namespace: %s): %w",
			ErrRemains, done, s.unknown)
	}
	if err := s.hidden(); err != nil {
		return fmt.Errorf("%w (this namespace: %s)", err, done)
	}
	return nil
}

// hidden returns an error that wraps ErrRemains if a private subsystem has unattached namespaces.
func (s nvmeScope) hidden() error {
	if s.shared || len(s.unattached) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s, not attached to the NVMe controller", ErrRemains, namespaceList(s.unattached))
}

// namespaceList formats namespace ids as text, at most 16 of them.
func namespaceList(ids []uint32) string {
	var words []string
	for _, id := range ids[:min(len(ids), 16)] {
		words = append(words, strconv.FormatUint(uint64(id), 10))
	}
	if more := len(ids) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	if len(ids) == 1 {
		return "namespace " + words[0]
	}
	return "namespaces " + strings.Join(words, ", ")
}
