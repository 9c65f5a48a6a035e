package placement

import (
	"encoding/json"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// exported is a decision with all that it was decided by.
type exported struct {
	Name     string             `json:"name"`
	At       int64              `json:"at"`
	Seed     uint64             `json:"seed,string"`
	Server   string             `json:"server"`
	Score    float64            `json:"score"`
	Looked   int                `json:"looked"`
	Batches  int                `json:"batches"`
	Chain    Expression         `json:"chain"`
	Settings Settings           `json:"settings"`
	Request  Request            `json:"request"`
	Names    []string           `json:"names"`
	Servers  []exportedServer   `json:"servers"`
	Spreads  []map[string]int32 `json:"spreads,omitempty"`
	Places   map[string]string  `json:"places,omitempty"`
}

type exportedServer struct {
	Server    Server             `json:"record"`
	Free      plimsoll.Resources `json:"free"`
	Instances uint32             `json:"instances"`
	Uncapped  uint32             `json:"uncapped,omitempty"`
	Owned     uint32             `json:"owned,omitempty"`
	Sick      bool               `json:"sick,omitempty"`
	Hits      []uint32           `json:"hits,omitempty"`
}

// Export returns the decision as JSON with everything that Replay needs: the chain and its settings, the request, and the servers of the
// last batch as they were.
func (d *Decision) Export() ([]byte, error) {
	r := d.Record()
	x := exported{
		Name: r.Name, At: r.At, Seed: r.Seed, Server: r.Server, Score: r.Score, Looked: r.Looked, Batches: r.Batches, Chain: r.Chain,
		Settings: r.Settings, Request: r.Request, Names: r.Names, Spreads: r.Spreads, Places: r.Places,
	}
	for _, s := range r.Servers {
		x.Servers = append(x.Servers, exportedServer(s))
	}
	data, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a decision: %w", err)
	}
	return data, nil
}

// Replay decides an exported decision again, with the stages that a program has; nil means those of the package.
func Replay(data []byte, stages []Stage) (*Replayed, error) {
	var x exported
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, plimsoll.Invalid("decision", "cannot be read: %s; give a file that an export wrote", err)
	}
	r := DecisionRecord{
		Name: x.Name, At: x.At, Seed: x.Seed, Server: x.Server, Score: x.Score, Looked: x.Looked, Batches: x.Batches, Chain: x.Chain,
		Settings: x.Settings, Request: x.Request, Names: x.Names, Spreads: x.Spreads, Places: x.Places,
	}
	for _, s := range x.Servers {
		r.Servers = append(r.Servers, RecordedServer(s))
	}
	return r.Replay(stages)
}
