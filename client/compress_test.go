package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

func TestAnswersAreCompressedOnlyForThoseWhoAsk(t *testing.T) {
	for _, c := range []struct {
		compress bool
		takes    string
	}{{false, "identity"}, {true, "gzip"}} {
		asked := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get("Accept-Encoding")
			w.WriteHeader(http.StatusNotFound)
		}))
		user := strings.TrimPrefix(token.New(token.User).Header(), "Bearer ")
		cl, err := client.New(client.Config{Server: server.URL, Token: user, RetryBudget: -1, Compress: c.compress})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Job(t.Context(), "a"); err == nil {
			t.Error("the server has answered")
		}
		if got := <-asked; got != c.takes {
			t.Errorf("Compress %v accepts %q, not %q", c.compress, got, c.takes)
		}
		cl.Close()
		server.Close()
	}
}
