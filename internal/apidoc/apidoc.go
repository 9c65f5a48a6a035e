// Package apidoc holds the reference of the calls that users make to a gateway, and serves it:
//
//	mux.Handle("/docs/", apidoc.Handler())
//
// The pages are made from the comments of proto/ by the command in write, which `make generate`
// runs. It also writes docs/reference/calls.md. scripts/generated fails when they are not what
// proto/ gives.
//
// Pages are embedded, so the memory of all answers is theirs. Each page has an ETag, by which a
// browser that has it gets an answer without a body. The pages run no script and load nothing from
// elsewhere; a header forbids both. The package owns no goroutines and no files.
package apidoc

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
)

// Services returns the names of the services for users, in the order of the reference.
func Services() []string {
	return []string{
		plimsollv1connect.JobServiceName, plimsollv1connect.NodeServiceName, plimsollv1connect.QueueServiceName,
		plimsollv1connect.PolicyServiceName, plimsollv1connect.EventServiceName, plimsollv1connect.WatchServiceName,
		plimsollv1connect.RequestEventServiceName, plimsollv1connect.HistoryServiceName,
		plimsollv1connect.LeaderServiceName,
	}
}

// Root is the path of the first page.
const Root = "/docs/"

//go:embed pages
var pages embed.FS

// page is one file, ready to be sent.
type page struct {
	data []byte
	tag  string // ETag
	kind string // Content-Type
}

// Handler serves the reference below Root, to GET and HEAD alone.
func Handler() http.Handler {
	served := map[string]page{}
	entries, err := fs.ReadDir(pages, "pages")
	if err != nil {
		panic(err) // a broken invariant: the directory is embedded
	}
	for _, e := range entries {
		data, err := pages.ReadFile("pages/" + e.Name())
		if err != nil {
			panic(err) // the same
		}
		sum := sha256.Sum256(data)
		served[Root+e.Name()] = page{
			data: data, tag: `"` + hex.EncodeToString(sum[:16]) + `"`, kind: mime.TypeByExtension(path.Ext(e.Name())),
		}
	}
	served[Root] = served[Root+"index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the reference is only read: use GET", http.StatusMethodNotAllowed)
			return
		}
		if r.URL.Path == strings.TrimSuffix(Root, "/") {
			http.Redirect(w, r, Root, http.StatusMovedPermanently)
			return
		}
		p, ok := served[r.URL.Path]
		if !ok {
			http.Error(w, "there is no such page; the reference begins at "+Root, http.StatusNotFound)
			return
		}
		p.send(w, r)
	})
}

// policy forbids a page to run scripts, to load anything from elsewhere and to be framed.
const policy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *page) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", p.kind)
	h.Set("ETag", p.tag)
	h.Set("Cache-Control", "no-cache") // a browser asks each time, by the ETag
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.data))
}
