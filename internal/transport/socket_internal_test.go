package transport

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The name of a socket appears with the mode that it keeps: there is no instant at which others
// could connect.
func TestSocketIsBornForItsUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	config := net.ListenConfig{Control: forItsUser}
	l, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is born as %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
