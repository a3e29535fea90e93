package bmc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// root is the path of the service root.
const root = "/redfish/v1"

var (
	errBadRequest = errors.New("bad request")
	errNotFound   = errors.New("not found")
)

// object is a JSON object.
type object = map[string]any

// link returns a reference to another resource.
func link(elem ...string) object { return object{"@odata.id": path.Join(elem...)} }

// Server is a Redfish service for several systems.
type Server struct {
	log *slog.Logger
	mux *http.ServeMux

	mu      sync.Mutex
	systems []*System
}

// NewServer returns a service without systems; log may be nil.
func NewServer(log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	s := &Server{log: log, mux: mux}
	handle := func(pattern string, f func(*http.Request) (any, error)) { mux.HandleFunc(pattern, s.answer(f)) }
	handle("GET /redfish", func(*http.Request) (any, error) { return object{"v1": root + "/"}, nil })
	handle("GET "+root, s.serviceRoot)
	for _, kind := range []string{"Systems", "Managers", "Chassis"} {
		handle("GET "+root+"/"+kind, s.collection(kind))
	}
	handle("GET "+root+"/Systems/{id}", s.with(system))
	handle("PATCH "+root+"/Systems/{id}", s.with(patchSystem))
	handle("POST "+root+"/Systems/{id}/Actions/ComputerSystem.Reset", s.with(resetSystem))
	handle("GET "+root+"/Systems/{id}/EthernetInterfaces", s.with(interfaces))
	handle("GET "+root+"/Systems/{id}/EthernetInterfaces/{nic}", s.with(oneInterface))
	handle("GET "+root+"/Managers/{id}", s.with(manager))
	handle("GET "+root+"/Chassis/{id}", s.with(chassis))
	for _, kind := range []string{"Systems", "Managers"} {
		base := root + "/" + kind + "/{id}/VirtualMedia"
		handle("GET "+base, s.with(mediaCollection))
		handle("GET "+base+"/{drive}", s.with(oneMedium))
		handle("POST "+base+"/{drive}/Actions/VirtualMedia.InsertMedia", s.with(insertMedium))
		handle("POST "+base+"/{drive}/Actions/VirtualMedia.EjectMedia", s.with(ejectMedium))
	}
	return s
}

// Add adds a system to the service.
func (s *Server) Add(system *System) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.systems = append(s.systems, system)
}

func (s *Server) list() []*System {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.systems)
}

// ServeHTTP handles a Redfish request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if trimmed := strings.TrimRight(r.URL.Path, "/"); trimmed != "" {
		r.URL.Path = trimmed // clients request the service root with and without a trailing slash
	}
	s.mux.ServeHTTP(w, r)
}

// answer returns a handler that sends the object returned by f, or "204 No Content" if f returns nil.
func (s *Server) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := f(r)
		status := http.StatusOK
		switch {
		case errors.Is(err, errNotFound):
			status = http.StatusNotFound
		case errors.Is(err, errBadRequest):
			status = http.StatusBadRequest
		case err != nil:
			status = http.StatusInternalServerError
		case result == nil:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err != nil {
			s.log.Error("redfish request failed", "method", r.Method, "url", r.URL.Path, "err", err)
			const id = "Base.1.0.GeneralError"
			result = object{"error": object{
				"code": id, "message": err.Error(),
				"@Message.ExtendedInfo": []object{{"MessageId": id, "Message": err.Error()}},
			}}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(result) // fails only if the client has disconnected
	}
}

// with returns a function that calls f with the system named in the request.
func (s *Server) with(f func(*System, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		systems := s.list()
		i := slices.IndexFunc(systems, func(s *System) bool { return s.UUID == id })
		if i < 0 {
			return nil, fmt.Errorf("%w: system %q", errNotFound, id)
		}
		return f(systems[i], r)
	}
}

// decode decodes a request's body.
func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return nil
}

func (s *Server) serviceRoot(*http.Request) (any, error) {
	return object{
		"@odata.id": root, "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "Id": "RootService", "Name": "Lab",
		"RedfishVersion": "1.6.0", "UUID": "5f6d2a0e-0b8e-4b57-9a37-52e4f1f3c0aa",
		"Systems": link(root, "Systems"), "Managers": link(root, "Managers"), "Chassis": link(root, "Chassis"),
	}, nil
}

func (s *Server) collection(kind string) func(*http.Request) (any, error) {
	schema := map[string]string{
		"Systems": "ComputerSystemCollection", "Managers": "ManagerCollection", "Chassis": "ChassisCollection",
	}[kind]
	return func(*http.Request) (any, error) {
		var ids []string
		for _, system := range s.list() {
			ids = append(ids, system.UUID)
		}
		return members(path.Join(root, kind), schema, ids), nil
	}
}

// members returns a collection resource.
func members(base, schema string, ids []string) object {
	links := make([]object, 0, len(ids))
	for _, id := range ids {
		links = append(links, link(base, id))
	}
	return object{
		"@odata.id": base, "@odata.type": "#" + schema + "." + schema, "Name": schema,
		"Members@odata.count": len(links), "Members": links,
	}
}
