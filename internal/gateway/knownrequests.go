package gateway

import (
	"sync"

	"google.golang.org/protobuf/proto"
)

const (
	// maxKnownRequest bounds the body of a request that is kept decoded.
	maxKnownRequest = 512
	// maxKnownRequests bounds what a read keeps of them, in bytes.
	maxKnownRequests = 128 << 10
	// knownOverhead is the approximate cost of an entry beside its body and its message.
	knownOverhead = 128
)

// knownRequests are requests of one read that came before, decoded and checked. Callers that poll
// send the same bytes each time. When there is no room for another one, all are dropped. The zero
// value is ready.
type knownRequests struct {
	mu struct {
		sync.RWMutex
		size   int
		bodies [2]map[string]proto.Message // binary and JSON. Invariant: nobody changes a message
	}
}

func encodingOf(json bool) int {
	if json {
		return 1
	}
	return 0
}

// find returns the request that a body holds; nil: it is not known.
func (k *knownRequests) find(body []byte, json bool) proto.Message {
	if len(body) > maxKnownRequest {
		return nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.mu.bodies[encodingOf(json)][string(body)]
}

// keep adds a request that has passed all checks of its form.
func (k *knownRequests) keep(body []byte, json bool, request proto.Message, footprint int) {
	size := len(body) + footprint + knownOverhead
	if len(body) > maxKnownRequest || size > maxKnownRequests/8 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.bodies[encodingOf(json)][string(body)] != nil { // another request has added it meanwhile
		return
	}
	if k.mu.size += size; k.mu.size > maxKnownRequests {
		k.mu.size, k.mu.bodies = size, [2]map[string]proto.Message{}
	}
	bodies := &k.mu.bodies[encodingOf(json)]
	if *bodies == nil {
		*bodies = map[string]proto.Message{}
	}
	(*bodies)[string(body)] = request
}
