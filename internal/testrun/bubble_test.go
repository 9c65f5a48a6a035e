package testrun_test

import (
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// Under the race detector this ends the process when two goroutines of a bubble run on two
// processors.
func TestTimersThatAreDueAtOnceDoNotEndTheProcess(t *testing.T) {
	testrun.Bubble(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 1000 {
					<-time.NewTimer(0).C
				}
			})
		}
		all.Wait()
	})
}
