package coordinator

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// checkPosition checks the report of a historian against the events that are published. A historian
// has no others: it reads them from gateways. The engine, which knows no ids of events, checks that
// a position does not go back within an InstanceUUID.
func checkPosition(s *replica.Snapshot, do *engine.ReportHistorian) error {
	present := s.InstanceUUID()
	if next := s.Events().Next(); do.Instance == present && do.Next > next {
		return plimsoll.Invalid("next", "is %d, and the next event is %d; give the id behind the newest event that you have",
			do.Next, next)
	}
	data, has := s.Get(wire.KindHistorian, do.Name)
	if !has {
		return nil
	}
	earlier, err := wire.DecodeHistorian(data)
	if err != nil {
		return fmt.Errorf("read the registered historian %.*q: %w", plimsoll.MaxID, do.Name, err)
	}
	said := plimsoll.Historian{Name: do.Name, InstanceUUID: do.Instance, Next: do.Next}
	return said.Follows(&earlier, present) //nolint:wrapcheck // it names the historian
}
