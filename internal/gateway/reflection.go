package gateway

import (
	"net/http"

	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// reflectionRequest is the name of the type of requests in package grpcreflect, which has its own
// copy of gRPC's.
const reflectionRequest = "connectext.grpc.reflection.v1.ServerReflectionRequest"

// reflection adds the two versions of gRPC's reflection service, by which programs such as grpcurl
// learn the calls for users. A stream of it takes a slot for streams. Each of its requests is
// counted and charged until the stream ends, so that a stream of very many is refused.
func (g *Gateway) reflection(handle func(path string, h http.Handler)) {
	input, err := protoregistry.GlobalTypes.FindMessageByName(reflectionRequest)
	if err != nil {
		panic(err) // a broken invariant: the service's code is linked in
	}
	options := append(g.guarded(compressFrom), wire.Bounded(g.requestBounds()))
	reflector := grpcreflect.NewStaticReflector(apidoc.Services()...)
	add := func(path string, h http.Handler) {
		g.methods[path+"ServerReflectionInfo"] = method{input.Zero().Interface(), true}
		handle(path, h)
	}
	add(grpcreflect.NewHandlerV1(reflector, options...))
	add(grpcreflect.NewHandlerV1Alpha(reflector, options...))
}
