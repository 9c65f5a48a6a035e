package nodeqos

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// checkpointEvery is the interval at which the predictors are recorded. They learn over hours.
const checkpointEvery = time.Minute

// lending computes the extended resources that the node offers: the part that its tasks leave
// unused.
type lending struct {
	cfg         qos.PredictorConfig
	cpu, memory *qos.Predictor // nil: nothing is lent
	offers      struct{ cpu, memory qos.Offer }
	savedAt     int64
}

func (n *lending) init(c *Config) {
	if c.Extended.Enabled {
		n.cfg = qos.PredictorConfig{HalfLife: c.Extended.HalfLife, WarmUp: c.Extended.WarmUp}
		n.cpu, n.memory = qos.NewPredictor(n.cfg), qos.NewPredictor(n.cfg)
	}
}

// lend fills in the current offers. The use by holders of extended resources is left out of the
// predicted use, since it is the lent part.
func (s *loopState) lend(l *Loop, snap *qos.Snapshot) {
	n := &s.lending
	if n.cpu == nil {
		return
	}
	cpu, memory := ext{all: qos.CPUTotalUsage, known: true}, ext{all: qos.MemoryTotalUsage, known: true}
	for i := range snap.Tasks {
		t := &snap.Tasks[i]
		if !t.Gone {
			cpu.add(t.ExtCPU, t.CPU, t.CPUKnown)
			memory.add(t.ExtMemory, t.Memory, t.MemoryKnown)
		}
	}
	cpu.observe(n.cpu, snap)
	memory.observe(n.memory, snap)
	allocatable, cores := nanocores(l.cfg.Allocatable[plimsoll.CPU]), snap.Cores
	if allocatable <= 0 || allocatable > cores {
		allocatable = cores
	}
	n.offers.cpu = qos.Extended(cpu.input(n.cpu, snap.At, allocatable, l.cfg.Extended.CPUReserve, n.offers.cpu))
	allocatable = l.cfg.Allocatable[plimsoll.Memory]
	if allocatable <= 0 || allocatable > snap.Memory {
		allocatable = snap.Memory
	}
	n.offers.memory = qos.Extended(
		memory.input(n.memory, snap.At, allocatable, l.cfg.Extended.MemoryReserve, n.offers.memory),
	)
	snap.ExtCPU, snap.ExtMemory = n.offers.cpu.Target, n.offers.memory.Target
	if snap.At-n.savedAt >= int64(checkpointEvery) {
		l.savePredictors()
		n.savedAt = snap.At
	}
}

// ext sums up one extended resource over the tasks.
type ext struct {
	all        string // metric of the whole node's use
	held, used int64
	known      bool // the use of every holder is known
}

func (e *ext) add(holds, uses int64, known bool) {
	if holds <= 0 {
		return
	}
	e.held += holds
	e.used += uses
	e.known = e.known && known
}

func (e *ext) observe(p *qos.Predictor, snap *qos.Snapshot) {
	if all, ok := snap.Values[e.all]; ok && e.known {
		p.Observe(snap.At, all-e.used)
	}
}

func (e *ext) input(p *qos.Predictor, at, allocatable int64, reserve int32, was qos.Offer) qos.ExtendedInput {
	peak, known := p.Peak(at)
	return qos.ExtendedInput{
		Allocatable: allocatable, Reserve: scale(allocatable, int64(reserve), 100), Predicted: peak,
		PredictedKnown: known,
		Held:           e.held, Used: e.used, Previous: was,
	}
}

// offered returns the offers in the form of a report; nil: none.
func (n *lending) offered() plimsoll.Resources {
	r := plimsoll.Resources{}
	if milli := n.offers.cpu.Published / (qos.Core / 1000); milli > 0 {
		r[plimsoll.ExtCPU] = milli
	}
	if bytes := n.offers.memory.Published; bytes > 0 {
		r[plimsoll.ExtMemory] = min(bytes, plimsoll.MaxAmount)
	}
	if len(r) == 0 {
		return nil
	}
	return r
}

// predictorsFile is the content of the file predictorsName.
type predictorsFile struct{ CPU, Memory json.RawMessage }

func (l *Loop) savePredictors() {
	n := &l.state.lending
	if n.cpu == nil {
		return
	}
	cpu, err := n.cpu.Checkpoint()
	memory, err2 := n.memory.Checkpoint()
	if err = errors.Join(err, err2); err == nil {
		var data []byte
		if data, err = json.Marshal(predictorsFile{cpu, memory}); err == nil {
			err = replace(l.path(predictorsName), data)
		}
	}
	if err != nil {
		l.trouble(TroubleSavePredictors, err)
	}
}

// loadPredictors restores the recorded predictors, across boots too.
func (l *Loop) loadPredictors() {
	n := &l.state.lending
	if n.cpu == nil {
		return
	}
	data, err := os.ReadFile(l.path(predictorsName))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var file predictorsFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err == nil {
		cpu, cpuErr := qos.RestorePredictor(n.cfg, file.CPU)
		memory, memoryErr := qos.RestorePredictor(n.cfg, file.Memory)
		if err = errors.Join(cpuErr, memoryErr); err == nil {
			n.cpu, n.memory = cpu, memory
			return
		}
	}
	l.trouble(TroubleLoadPredictors, err)
}
