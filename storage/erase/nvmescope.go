package erase

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/nvme"
)

// nvmeScope describes which namespaces belong to the NVM subsystem of a namespace (NVM Express base specification 2.0,
// 5.17 and 8.11). Block devices do not show unattached namespaces or namespaces of other controllers.
type nvmeScope struct {
	unknown    error    // why the other fields are incomplete
	managed    bool     // the controller manages namespaces, so a private subsystem can have unattached ones
	shared     bool     // other controllers may reach the subsystem or the namespace
	listed     bool     // unattached was read; controllers without namespace management have no such list
	others     []uint32 // all known namespaces except the one to erase
	unattached []uint32 // the others that are not attached to the controller

	lockUnknown bool // the drive does not say whether it is locked, see checkLocked
}

// identifyAll identifies the controller and the device's namespace, and determines the scope. If the scope is not
// known, the namespace is not valid. The controller is nil if it could not be identified.
func identifyAll(
	ctx context.Context, d adminDevice,
) (controller *nvme.Identity, namespace nvme.Namespace, scope nvmeScope) {
	nsid, err := d.namespace()
	if err != nil {
		return nil, namespace, nvmeScope{unknown: fmt.Errorf("NVMe namespace id: %w", err)}
	}
	query := queryNVMe(ctx, d)
	id, err := query.Identify()
	if err != nil {
		return nil, namespace, nvmeScope{unknown: err}
	}
	if namespace, err = query.Namespace(nsid); err == nil {
		scope, err = readScope(query, nsid, id, id.SharedSubsystem || namespace.Shared)
	}
	scope.unknown = err
	return &id, namespace, scope
}

// readScope reads the scope from the controller. nsid is 0 for a controller without a namespace to erase. With an
// error, shared and managed are valid.
func readScope(query nvme.Controller, nsid uint32, controller nvme.Identity, shared bool) (nvmeScope, error) {
	scope := nvmeScope{shared: shared, managed: controller.NamespaceManagement}
	active, err := query.ActiveNamespaces(controller)
	if err != nil {
		return scope, err
	}
	all := active
	if scope.managed {
		allocated, err := query.AllocatedNamespaces()
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
// ones. done names the command that erased the namespace itself.
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
