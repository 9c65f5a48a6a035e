package fleetjson

import (
	"encoding/json"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// ReadInstances reads the instances of one server: a JSON list in the form of ReadServers. The
// first field that cannot be used is an error that names it.
func ReadInstances(data []byte) ([]placement.Instance, error) {
	raw, err := document(data)
	if err != nil {
		return nil, err
	}
	r := newReader()
	out := []placement.Instance{}
	r.list(raw, func(raw json.RawMessage) {
		var in placement.Instance
		r.instance(&in)(raw)
		out = append(out, in)
	})
	for i := 0; r.err == nil && i < len(out); i++ {
		r.err = out[i].Validate()
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}
