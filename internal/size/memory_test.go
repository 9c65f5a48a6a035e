package size_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Memory agrees roughly with the collector on the size of a specification. That holds for a few
// large texts and for many small ones, and also if the record is small.
func TestMemoryIsAboutWhatASpecificationTakes(t *testing.T) {
	small := plimsoll.GroupSpec{Name: "g", Command: []string{"true"}}
	many := plimsoll.GroupSpec{Name: "g", Command: []string{"true"}, Env: map[string]string{}}
	for i := range 5000 {
		many.Command = append(many.Command, strings.Repeat("x", 2+i%3))
		many.Env[strings.Repeat("K", 2+i%60)+string(rune('A'+i%26))] = "vv"
	}
	large := plimsoll.GroupSpec{Name: "g", Command: []string{"true", strings.Repeat("x", 100_000)}}
	for name, g := range map[string]plimsoll.GroupSpec{"small": small, "many": many, "large": large} {
		record := wire.AppendJobSpec(
			nil, &plimsoll.JobSpec{ID: "j", Queue: "root.default", Groups: []plimsoll.GroupSpec{g}},
		)
		const copies = 200
		kept := make([]*plimsoll.JobSpec, copies)
		before := inUse()
		for i := range kept {
			spec, err := wire.DecodeJobSpec(record)
			if err != nil {
				t.Fatal(err)
			}
			kept[i] = &spec
		}
		takes, says := int(inUse()-before)/copies, size.Memory(kept[0])
		if says < takes*2/3 || says > takes*3 {
			t.Errorf("%s: takes %d bytes, and Memory says %d", name, takes, says)
		}
		t.Logf("%s: a record of %d bytes takes %d, and Memory says %d", name, len(record), takes, says)
		runtime.KeepAlive(kept)
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
