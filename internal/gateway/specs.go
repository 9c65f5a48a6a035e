package gateway

import (
	"bytes"
	"sync"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// maxSpecBytesKept bounds the encoded bytes of the specifications that are kept decoded.
	maxSpecBytesKept = 16 << 20
	// specOverhead is about what a specification takes beside its bytes.
	specOverhead = 1 << 10
)

// specCache keeps job specifications decoded. All streams share it: a job's tasks go to many nodes,
// and what a stream kept for itself would be there once for each of them. The zero value is ready.
type specCache struct {
	mu struct {
		sync.Mutex
		size  int
		byJob map[string]jobSpec
	}
}

// jobSpec is a decoded specification, which must not be changed, with the bytes that it was decoded
// from.
type jobSpec struct {
	data []byte
	spec *pb.JobSpec
}

// get decodes a job's specification, or finds it decoded.
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
		c.mu.byJob, c.mu.size = map[string]jobSpec{}, 0 // it is only a cache: what is still needed comes back
	}
	c.mu.byJob[job] = added
	c.mu.size += size
}
