package placement

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// StatusRunning is the status of a server whose agent is heard.
const StatusRunning = "running"

// Server is the record of a machine of the fleet. NewServer and package fleetjson set the defaults
// of absent fields.
type Server struct {
	ID       string
	Setup    bool   // the server was taken into service
	Status   string // StatusRunning, or the name of the problem
	Reserved string // why the server takes no instances, such as "cordoned"; empty: it takes them
	Fault    string // why the record cannot be used; empty: it can
	Capacity plimsoll.Resources
	Labels   map[string]string // free attributes, such as rack
	plimsoll.NodeFacts

	// Instances run on the server. They are empty if a Loader loads them or Fleet.Bind books them.
	Instances []Instance
}

// NewServer returns a server that is set up and runs.
func NewServer(id string, capacity plimsoll.Resources) Server {
	return Server{ID: id, Setup: true, Status: StatusRunning, Capacity: capacity}
}

// Instance is a task, a container or a virtual machine on a server.
type Instance struct {
	ID        string
	Owner     string
	Job       string
	Group     string            // of the job
	Labels    map[string]string // of the job
	Resources plimsoll.Resources
	Failed    bool               // the instance ended because of the server, and holds only Left
	Left      plimsoll.Resources // amounts that a failed instance still holds, such as its volumes
	Modified  int64              // Unix time of the last change; 0: not known
}

// held returns the amounts that the instance holds.
func (in *Instance) held() plimsoll.Resources {
	if in.Failed {
		return in.Left
	}
	return in.Resources
}

// Validate reports the first fault that makes the record of a server unusable.
func (s *Server) Validate() error {
	if s.ID == "" {
		return plimsoll.Invalid("id", "is empty; give each server its own id")
	}
	if err := s.Capacity.Validate("capacity"); err != nil {
		return err
	}
	if err := validRatios("overprovision", s.Overprovision); err != nil {
		return err
	}
	for _, name := range sortedKeys(s.Reserve) {
		if v := s.Reserve[name]; !(v >= 0 && v < 1) {
			return plimsoll.Invalid("reserve."+name, "is %v; give a part from 0 to below 1", v)
		}
	}
	if len(s.Traits) > plimsoll.MaxTraits {
		return plimsoll.Invalid("traits", "has %d entries; at most %d are possible", len(s.Traits), plimsoll.MaxTraits)
	}
	if s.MaxTasks < 0 {
		return plimsoll.Invalid("maxTasks", "is negative; give the most instances that it takes, or 0 for no bound")
	}
	for i := range s.Instances {
		if err := s.Instances[i].Validate(); err != nil {
			return err
		}
	}
	return countable(s.Instances)
}

// countable returns an error if the amounts of the instances add up to more than can be counted.
func countable(list []Instance) error {
	if int64(len(list)) <= mostCounted/plimsoll.MaxAmount {
		return nil // too few to reach mostCounted
	}
	sum := plimsoll.Resources{}
	for i := range list {
		held := list[i].held()
		for _, name := range held.Names() {
			if sum[name] += held[name]; sum[name] > mostCounted {
				return plimsoll.Invalid(
					"instances", "hold more than can be counted of %s: more than %s", name,
					plimsoll.FormatQuantity(name, mostCounted),
				)
			}
		}
	}
	return nil
}

func validRatios(field string, ratios map[string]float64) error {
	for _, name := range sortedKeys(ratios) {
		if v := ratios[name]; !(v > 0 && v <= plimsoll.MaxRatio) {
			return plimsoll.Invalid(field+"."+name, "is %v; give a ratio above 0, at most %d", v, plimsoll.MaxRatio)
		}
	}
	return nil
}

// Validate reports the first fault that makes the record of an instance unusable.
func (in *Instance) Validate() error {
	if err := in.Resources.Validate("instances." + in.ID + ".resources"); err != nil {
		return err
	}
	if err := in.Left.Validate("instances." + in.ID + ".left"); err != nil {
		return err
	}
	if in.Modified < 0 {
		return plimsoll.Invalid("instances."+in.ID+".modified", "is negative; give Unix seconds")
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
