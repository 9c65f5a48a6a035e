package gateway

import (
	"bytes"
	"sync"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// maxSpecBytesKept bounds the cache, in encoded bytes of its specifications.
	maxSpecBytesKept = 16 << 20
	// specOverhead is the approximate cost of a specification beside its bytes.
	specOverhead = 1 << 10
)

// specCache holds decoded job specifications. All streams share it: a job's tasks go to many nodes,
// and a cache of each stream would hold the same specification once for each node. The zero value
// is ready.
type specCache struct {
	mu struct {
		sync.Mutex
		size  int
		byJob map[string]jobSpec
	}
}

// jobSpec is a decoded specification with its encoded bytes. Invariant: nobody changes spec.
type jobSpec struct {
	data []byte
	spec *pb.JobSpec
}

// get returns a job's specification, decoded now or before.
func (c *specCache) get(job string, data []byte) (*pb.JobSpec, error) {
	if cached, has := c.find(job); has && bytes.Equal(cached.data, data) {
		return cached.spec, nil
	}
	spec := &pb.JobSpec{}
	if err := decode(wire.KindJobSpec, job, data, spec); err != nil {
		return nil, err
	}
	c.keep(job, jobSpec{data, spec})
	return spec, nil
}

func (c *specCache) find(job string) (jobSpec, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, has := c.mu.byJob[job]
	return cached, has
}

func (c *specCache) keep(job string, added jobSpec) {
	size := len(added.data) + specOverhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, has := c.mu.byJob[job]; has {
		c.mu.size -= len(old.data) + specOverhead
		delete(c.mu.byJob, job)
	}
	if c.mu.byJob == nil || c.mu.size+size > maxSpecBytesKept {
		c.mu.byJob, c.mu.size = map[string]jobSpec{}, 0 // a cache: specifications still in use are decoded again
	}
	c.mu.byJob[job] = added
	c.mu.size += size
}
