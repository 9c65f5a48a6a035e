package transport_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		address, network, rest string // network "": refused
		loopback               bool
	}{
		{"127.0.0.1:9080", "tcp", "127.0.0.1:9080", true},
		{"http://127.0.0.1:9080", "tcp", "127.0.0.1:9080", true},
		{"http://127.0.0.1:9080/", "tcp", "127.0.0.1:9080", true},
		{"127.8.7.6:0", "tcp", "127.8.7.6:0", true},
		{"localhost:9080", "tcp", "localhost:9080", true},
		{"[::1]:9080", "tcp", "[::1]:9080", true},
		{"unix:/run/p.sock", "unix", "/run/p.sock", true},
		{"unix:///run/p.sock", "unix", "/run/p.sock", true},
		{"unix:p.sock", "unix", "p.sock", true},
		{":9080", "tcp", ":9080", false},
		{"0.0.0.0:9080", "tcp", "0.0.0.0:9080", false},
		{"[::]:9080", "tcp", "[::]:9080", false},
		{"10.0.0.1:9080", "tcp", "10.0.0.1:9080", false},
		{"example.org:9080", "tcp", "example.org:9080", false},
		{"localhost.example.org:9080", "tcp", "localhost.example.org:9080", false},
		{"", "", "", false},
		{"unix:", "", "", false},
		{"unix://", "", "", false},
		{"127.0.0.1", "", "", false},
		{"127.0.0.1:", "", "", false},
		{"127.0.0.1:-1", "", "", false},
		{"127.0.0.1:65536", "", "", false},
		{"127.0.0.1:9080/path", "", "", false},
		{"::1:9080", "", "", false},
		{"https://127.0.0.1:9080", "", "", false},
		{"http://", "", "", false},
	} {
		network, rest, err := transport.Split(test.address)
		if network != test.network || rest != test.rest || (err != nil) != (test.network == "") {
			t.Errorf("Split(%q) = %q, %q, %v; want %q, %q", test.address, network, rest, err, test.network, test.rest)
		}
		if err != nil {
			wantCode(t, err, plimsoll.CodeInvalid, "write for example")
		}
		if got := transport.Loopback(test.address); got != test.loopback {
			t.Errorf("Loopback(%q) = %v", test.address, got)
		}
	}
}

func wantCode(t *testing.T, err error, code plimsoll.Code, texts ...string) {
	t.Helper()
	if plimsoll.CodeOf(err) != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // most tests have closed it; a second time is an error
	return l
}

func TestPortInUseIsRefused(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	_, err := transport.Listen(l.Addr().String())
	wantCode(t, err, plimsoll.CodeAlreadyRunning, l.Addr().String(), "in use", "another address")
}

func TestSocketIsForItsUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, "unix:"+path)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after its end: %v", err)
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listen(t, "unix:"+path)
	_, err := transport.Listen("unix:" + path)
	wantCode(t, err, plimsoll.CodeAlreadyRunning, path, "stop it")
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
}

// A process that does not get round to accepting is alive all the same.
func TestBusySocketIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }() // it was only opened for this test
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; { // until its queue takes no more
		c, err := net.Dial("unix", path)
		if err == nil {
			defer func() { _ = c.Close() }() // the same
		}
		full = errors.Is(err, syscall.EAGAIN)
	}
	_, err = transport.Listen("unix:" + path)
	wantCode(t, err, plimsoll.CodeAlreadyRunning, path)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false) // as if it was killed
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the test needs a stale socket: %v", err)
	}
	l := listen(t, "unix:"+path)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the new socket does not answer: %v", err)
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// Of several that want a stale socket at the same instant one gets it, and keeps it.
func TestStaleSocketGoesToOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false) // as if it was killed
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	const many = 16
	listeners, errs := make(chan net.Listener, many), make(chan error, many)
	for range many {
		go func() {
			l, err := transport.Listen("unix:" + path)
			if err != nil {
				errs <- err
				return
			}
			listeners <- l
		}()
	}
	for range many - 1 {
		wantCode(t, <-errs, plimsoll.CodeAlreadyRunning, path)
	}
	l := <-listeners
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the one that got it cannot be reached: %v", err)
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir, filepath.Join(dir, "link")} {
		_, err := transport.Listen("unix:" + path)
		wantCode(t, err, plimsoll.CodeInvalid, path, "not a socket")
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
}

func TestPathTooLongForASocketIsExplained(t *testing.T) {
	path := "/" + strings.Repeat("x", 117)
	_, err := transport.Listen("unix:" + path)
	wantCode(t, err, plimsoll.CodeInvalid, "too long", "11 characters shorter")
}
