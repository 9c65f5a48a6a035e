package storetest

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A log is used again and again, and the machine dies all the time. Neither waits for the other.
func TestALogIsUsedAgainWhileTheMachineDies(t *testing.T) {
	fs := NewCrashableFS()
	names := [2]string{"old.log", "new.log"}
	f, err := fs.Create(names[0], "")
	if err != nil {
		t.Fatal(err)
	}
	var reuses sync.WaitGroup
	reuses.Go(func() {
		for i := range 2000 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if f, err = fs.ReuseForWrite(names[i%2], names[1-i%2], ""); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		fs.CrashClone(vfs.CrashCloneCfg{})
	}
	reuses.Wait()
}
