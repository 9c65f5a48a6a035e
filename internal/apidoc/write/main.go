// Command write makes the reference of the calls that users make, from the comments of proto/:
//
//	buf build -o api.binpb && go run ./internal/apidoc/write -in api.binpb -out .
//
// It writes internal/apidoc/pages/*.html, which gateways serve, and docs/reference/calls.md. Both
// have the services of apidoc.Services with all messages and enumerations that they use, and
// nothing of the services between roles. The same input gives the same bytes. The input is compiled
// by buf, because generated Go code has no comments.
//
// Cost: a second or less. `make generate` and scripts/generated call it; no package does.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
)

func main() {
	in := flag.String("in", "", "file that buf build has written")
	out := flag.String("out", ".", "directory of the repository")
	flag.Parse()
	if err := write(*in, *out); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "write the reference:", err) // there is nobody else to tell
		os.Exit(1)
	}
}

// write makes the files below a directory from a compiled set of proto files.
func write(in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	made, err := files(data)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	for name, data := range made {
		at := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files of the reference by their names in the repository.
func files(compiled []byte) (map[string][]byte, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(compiled, set); err != nil {
		return nil, fmt.Errorf("it is no set of compiled proto files: %w", err)
	}
	protos, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	ref, err := readReference(protos, apidoc.Services())
	if err != nil {
		return nil, err
	}
	made, err := ref.html()
	if err != nil {
		return nil, err
	}
	made["docs/reference/calls.md"] = ref.markdown()
	return made, nil
}
