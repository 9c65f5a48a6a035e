package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
)

//go:embed page.tmpl
var pageTemplate string

//go:embed style.css
var style []byte

// htmlPage is one page of the reference.
type htmlPage struct {
	Title     string
	Reference *reference
	Service   *service // nil: not the page of a service
	Types     bool     // the page of messages and enumerations
}

// pagesDir is the directory of the pages in the repository.
const pagesDir = "internal/apidoc/pages/"

// html returns the pages by their names in the repository.
func (r *reference) html() (map[string][]byte, error) {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, fmt.Errorf("page.tmpl: %w", err)
	}
	made := map[string][]byte{pagesDir + "style.css": style}
	show := func(name string, p htmlPage) error {
		p.Reference = r
		var b bytes.Buffer
		if err := t.Execute(&b, p); err != nil {
			return fmt.Errorf("page.tmpl for %s: %w", name, err)
		}
		made[pagesDir+name] = b.Bytes()
		return nil
	}
	if err := show("index.html", htmlPage{Title: "Calls"}); err != nil {
		return nil, err
	}
	if err := show("types.html", htmlPage{Title: "Messages and enumerations", Types: true}); err != nil {
		return nil, err
	}
	for i := range r.Services {
		s := &r.Services[i]
		if err := show(s.Name+".html", htmlPage{Title: s.Name, Service: s}); err != nil {
			return nil, err
		}
	}
	return made, nil
}
