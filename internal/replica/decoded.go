package replica

import (
	"fmt"
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// decoded keeps the newest batch that a stream with a filter has looked at. Streams that keep up
// with the log look at the same one, which is decoded once for all. It holds one batch.
type decoded struct {
	mu struct {
		sync.Mutex
		data  []byte
		batch wire.Batch
	}
}

// batch returns the decoded form of an encoded batch. Neither may be changed.
func (d *decoded) batch(data []byte) (wire.Batch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.data) > 0 && len(data) > 0 && &d.mu.data[0] == &data[0] {
		return d.mu.batch, nil
	}
	batch, err := wire.DecodeBatch(data)
	if err != nil {
		return batch, fmt.Errorf("decode a batch for a filter: %w", err)
	}
	d.mu.data, d.mu.batch = data, batch
	return batch, nil
}
