package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// blockedConn is a connection whose peer reads nothing.
type blockedConn struct {
	net.Conn
	release chan struct{}
}

func (c blockedConn) Write(p []byte) (int, error) {
	<-c.release
	return len(p), nil
}

// The age of a waiting write is not measured with the wall clock, which may step.
func TestAWaitingWriteIsNotTimedByTheWallClock(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		owner := NewConnections(ConnectionsConfig{Users: 1, Agents: 1})
		blocked := blockedConn{release: make(chan struct{})}
		c := &conn{Conn: blocked, owner: owner}
		time.Sleep(3 * time.Second)
		written := make(chan error)
		go func() {
			_, err := c.Write([]byte("answer"))
			written <- err
		}()
		synctest.Wait()
		if since := time.Duration(c.writing.Load()); since < 3*time.Second || since > 4*time.Second {
			t.Errorf("the write began at %s of the connections' age, want 3s", since)
		}
		close(blocked.release)
		if err := <-written; err != nil || c.writing.Load() != 0 {
			t.Errorf("the write ended with %v, and still waits since %d", err, c.writing.Load())
		}
	})
}
