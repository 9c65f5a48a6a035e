package informer_test

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// A consumer that was busy is handed each key once, with the net effect of its changes.
func ExampleDeltaFIFO_Drain() {
	type server struct{ name, state string }
	queue, err := informer.NewDeltaFIFO(informer.FIFOConfig[server]{
		Key: func(s server) (string, error) { return s.name, nil },
	})
	if err != nil {
		panic(err)
	}
	_ = queue.Add(server{"a", "starting"}) // an error would be ErrRelist: the queue was full
	_ = queue.Add(server{"b", "starting"})
	_ = queue.Update(server{"a", "running"})
	_ = queue.Delete(server{"b", "stopped"})
	err = queue.Drain(context.Background(), func(batch informer.Batch[server]) error {
		for deltas := range batch.All() {
			for _, change := range deltas.Changes {
				fmt.Println(deltas.Key, change.Type, change.Object.state)
			}
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// a Added running
	// b Deleted stopped
	// <nil>
}
