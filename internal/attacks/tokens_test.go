package attacks

import (
	"os"
	"strings"
	"testing"
)

// token reads a token of the fleet, as a user with access to the file can.
func (f *fleet) token(t testing.TB, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(f.path(names...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (f *fleet) userToken(t testing.TB) string {
	t.Helper()
	return f.token(t, "gateway", "user.token")
}

func (f *fleet) agentToken(t testing.TB) string {
	t.Helper()
	return f.token(t, "gateway", "agent.token")
}

func (f *fleet) leaderToken(t testing.TB) string {
	t.Helper()
	return f.token(t, "store", "gateway.token")
}
