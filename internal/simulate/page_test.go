package simulate_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// TestPageIsWholeAndNeedsNothing checks that the page is well formed, escapes names and names no
// other file. PAGE names a file to write it to, for a look at it.
func TestPageIsWholeAndNeedsNothing(t *testing.T) {
	first, second := run(t, smallWorkload(1)), run(t, smallWorkload(2))
	second.Policy = "<b>other</b>"
	page := simulate.Page([]*simulate.Report{first, second})
	if path := os.Getenv("PAGE"); path != "" {
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dec := xml.NewDecoder(bytes.NewReader(page))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	plots := 0
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			plots++
		}
	}
	if plots != 12 {
		t.Errorf("%d lines, want two in each of six plots", plots)
	}
	for _, wrong := range []string{"<b>other", "src=", "http:", "https:", "<script", "NaN"} {
		if strings.Contains(string(page), wrong) {
			t.Errorf("the page has %q", wrong)
		}
	}
}
