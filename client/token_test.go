package client_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

func TestTokenThatIsNotOfUsersIsRefused(t *testing.T) {
	agent := strings.TrimPrefix(token.New(token.Agent).Header(), "Bearer ")
	file := filepath.Join(t.TempDir(), "user.token")
	for name, cfg := range map[string]client.Config{
		"something else":      {Token: "hunter2"},
		"an agent's":          {Token: agent},
		"two":                 {Token: agent, TokenFile: file},
		"two, of one address": {Server: "127.0.0.1:1", Token: agent, TokenFile: file},
	} {
		_, err := client.New(cfg)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), agent)) {
			t.Errorf("%s: %v repeats the token", name, err)
		}
	}
	c, err := client.New(client.Config{Server: "127.0.0.1:1", TokenFile: file, RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Job(t.Context(), "a"); plimsoll.CodeOf(err) != plimsoll.CodeUnauthenticated || !strings.Contains(
		err.Error(), "there is no file "+file,
	) {
		t.Errorf("without the file: %v", err)
	}
}
