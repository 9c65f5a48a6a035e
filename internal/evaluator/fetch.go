package evaluator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of a document.
const (
	MaxServersBytes   = 256 << 20 // all servers of a part
	maxInstancesBytes = 16 << 20  // the instances of one server
)

const fetchTimeout = 30 * time.Second

// placeholder stands for the id of a server in Config.Instances.
const placeholder = "{server}"

func isURL(where string) bool {
	return strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://")
}

// newClient returns a client for documents. It follows no redirects.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Read reads a document of servers from a file or URL.
func Read(ctx context.Context, where string) ([]byte, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	return read(ctx, client, where, MaxServersBytes)
}

// read reads a document of at most most bytes.
func read(ctx context.Context, client *http.Client, where string, most int64) ([]byte, error) {
	if !isURL(where) {
		f, err := os.Open(where)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", shown(where), withoutName(err))
		}
		defer func() { _ = f.Close() }() // it was only read
		return readAll(shown(where), f, most)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, plimsoll.Invalid("", "a URL cannot be read; write for example http://host/servers")
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "read %s: %s", shown(where), withoutName(err))
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, plimsoll.Errorf(
			plimsoll.CodeUnavailable, "read %s: the answer is %s", shown(where), response.Status,
		)
	}
	return readAll(shown(where), response.Body, most)
}

func readAll(where string, from io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "read %s: %s", where, withoutName(err))
	}
	if int64(len(data)) > most {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted, "%s is larger than %d bytes, as large as it may be",
			where, most)
	}
	return data, nil
}

// shown returns a place as errors name it. Callers read errors, and a URL may hold a password.
func shown(where string) string {
	if !isURL(where) {
		return where
	}
	u, err := url.Parse(where)
	if err != nil {
		return "a URL"
	}
	return u.Redacted()
}

// withoutName returns an error without the operation and the name, which its reader is given
// separately.
func withoutName(err error) error {
	var file *os.PathError
	var fetched *url.Error
	switch {
	case errors.As(err, &file):
		return file.Err
	case errors.As(err, &fetched):
		return fetched.Err
	}
	return err
}

// fill puts the id of a server into a template. An id cannot lead out of a directory or into
// another part of a URL.
func fill(template, server string) (string, error) {
	if !isURL(template) {
		if server == "" || server == "." || server == ".." || strings.ContainsAny(server, "/\x00") {
			return "", plimsoll.Invalid("instances", "the server id %q cannot be part of a file name", server)
		}
		return strings.ReplaceAll(template, placeholder, server), nil
	}
	path, query, asks := strings.Cut(template, "?")
	if strings.Contains(path, placeholder) && (server == "" || server == "." || server == "..") {
		return "", plimsoll.Invalid("instances", "the server id %q cannot be part of the path of a URL", server)
	}
	path = strings.ReplaceAll(path, placeholder, url.PathEscape(server))
	if !asks {
		return path, nil
	}
	return path + "?" + strings.ReplaceAll(query, placeholder, url.QueryEscape(server)), nil
}
