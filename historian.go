package plimsoll

import "time"

// MaxHistorians is the most historians that may be registered at a time.
const MaxHistorians = 16

// KeepHistorian is how long a historian is registered without being heard.
const KeepHistorian = 72 * time.Hour

// Historian is a registered historian, which keeps events for as long as they are wanted. The
// events that it lacks are held back for it, within EventSettings.RingBufferHeldBytes.
type Historian struct {
	Name         string // of the historian, the same after it was started again
	InstanceUUID string // what Next counts in; empty: it has no event yet
	Next         uint64 // id of the first event that it lacks
	Heard        int64  // about when it said so, in Unix nanoseconds
}

// maxInstance bounds an InstanceUUID in bytes.
const maxInstance = 64

// Validate reports the first field that cannot be used.
func (h *Historian) Validate() error {
	if err := ValidateID("name", h.Name); err != nil {
		return err
	}
	if len(h.InstanceUUID) > maxInstance {
		return Invalid("instance_uuid", "is %d bytes long; give the one that came with the events, or none",
			len(h.InstanceUUID))
	}
	return nil
}

// Follows checks a further report: the position of a historian never goes back. instance is the
// present InstanceUUID. The error has CodeConflict.
func (h *Historian) Follows(earlier *Historian, instance string) error {
	if h.LacksFrom(instance) >= earlier.LacksFrom(instance) {
		return nil
	}
	return Errorf(CodeConflict, "the historian %s has said that it has the events before %d, and this one lacks those "+
		"from %d on: start one of them with another --name; if its history was restored from a backup, end the "+
		"registration first: plimsoll events historians remove %[1]s", h.Name, earlier.LacksFrom(instance),
		h.LacksFrom(instance))
}

// LacksFrom returns the id of the first event of an instance that the historian lacks. It lacks all
// of an instance that is not its own.
func (h *Historian) LacksFrom(instance string) uint64 {
	if h.InstanceUUID != instance {
		return 0
	}
	return h.Next
}
