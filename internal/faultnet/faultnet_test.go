package faultnet

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a link in memory with the ends of its last connection.
type pipes struct {
	t         *testing.T
	link      *Link
	near, far net.Conn
}

func newPipes(t *testing.T) *pipes {
	p := &pipes{t: t}
	p.link = New(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		p.far = far
		return near, nil
	})
	t.Cleanup(p.link.Close)
	p.dial()
	return p
}

func (p *pipes) dial() {
	p.t.Helper()
	var err error
	if p.near, err = p.link.Dial(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// passes reports whether a byte that one end sends reaches the other within a second.
func passes(t *testing.T, from, to net.Conn) bool {
	t.Helper()
	if _, err := from.Write([]byte("x")); err != nil {
		return false
	}
	if err := to.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := to.Read(make([]byte, 1))
	if err != nil && !timedOut(err) {
		t.Fatal(err)
	}
	return n == 1
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func (p *pipes) want(up, down bool) {
	p.t.Helper()
	if got := passes(p.t, p.near, p.far); got != up {
		p.t.Errorf("bytes to the target pass: %v, want %v", got, up)
	}
	if got := passes(p.t, p.far, p.near); got != down {
		p.t.Errorf("bytes to the caller pass: %v, want %v", got, down)
	}
}

// A link loses the directions that it is told, of present connections and of new ones, until it is
// healed; a connection that has lost bytes stays lost.
func TestALinkLosesTheDirectionsThatItIsTold(t *testing.T) {
	for directions, name := range map[Direction]string{Up: "one-way up", Down: "one-way down", Both: "half-open"} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				p := newPipes(t)
				p.want(true, true)
				p.link.Lose(directions, true)
				p.want(directions&Up == 0, directions&Down == 0)
				p.dial()
				p.want(directions&Up == 0, directions&Down == 0)
				p.link.Heal()
				p.want(directions&Up == 0, directions&Down == 0)
				p.dial()
				p.want(true, true)
			})
		})
	}
}

// Behind a direction that is lost nobody sees that the other side has closed its end.
func TestALostDirectionLosesTheEndToo(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		p := newPipes(t)
		p.link.Lose(Up, false)
		if err := p.near.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.far.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.far.Read(make([]byte, 1)); !timedOut(err) {
			t.Errorf("the target sees the end: %v", err)
		}
		p.link.CutLost()
		if _, err := p.far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after the cut: %v", err)
		}
	})
}

// A delay is added to each way, and ends with Heal.
func TestALinkDelays(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		p := newPipes(t)
		p.link.Delay(300 * time.Millisecond)
		began := time.Now()
		p.want(true, true)
		if took := time.Since(began); took != 600*time.Millisecond {
			t.Errorf("two ways took %s", took)
		}
		p.link.Heal()
		began = time.Now()
		p.want(true, true)
		if took := time.Since(began); took != 0 {
			t.Errorf("two ways took %s without a delay", took)
		}
	})
}

// A cut ends both sides; a refusal is seen by the caller; answers are cut where it was asked.
func TestALinkCutsAndRefuses(t *testing.T) {
	dir := t.TempDir()
	target := "unix:" + filepath.Join(dir, "far")
	server, err := net.Listen("unix", filepath.Join(dir, "far"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("0123456789")) // the caller counts what it gets
			_ = c.Close()                        // as above
		}
	}()
	defer func() {
		_ = server.Close() // which ends the goroutine
		<-served
	}()
	link, err := Listen(t.Context(), "unix:"+filepath.Join(dir, "near"), target)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	answer := func() string {
		c, err := net.Dial("unix", filepath.Join(dir, "near"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // it was only read
		data, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := answer(); got != "0123456789" {
		t.Errorf("a whole link carries %q", got)
	}
	link.CutAnswers(func() int64 { return 4 })
	if got := answer(); got != "0123" || link.Cuts() != 1 {
		t.Errorf("a link that cuts after 4 bytes carries %q and has cut %d", got, link.Cuts())
	}
	link.CutAnswers(nil)
	link.Refuse()
	if got := answer(); got != "" {
		t.Errorf("a link that refuses carries %q", got)
	}
	link.Heal()
	if got := answer(); got != "0123456789" || link.Dials() != 4 {
		t.Errorf("a healed link carries %q after %d dials", got, link.Dials())
	}
}
