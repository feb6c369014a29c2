package systemtest

import (
	"bytes"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"firsttap/internal/testkit"
)

// receiver receives spans over HTTP, as an OpenTelemetry collector does.
type receiver struct {
	url   string
	mu    sync.Mutex
	spans []*otlp.Span
	all   strings.Builder // everything that was received, as text
}

func listenOTLP(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.take(req); err != nil {
			t.Errorf("what was sent to %s: %v", req.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) take(req *http.Request) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	var batch collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &batch); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.WriteString(prototext.Format(&batch))
	for _, resource := range batch.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	return nil
}

// of returns the spans of a trace, in the order of their start.
func (r *receiver) of(trace string) []*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*otlp.Span
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *otlp.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return found
}

func (r *receiver) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

func attributeOf(attributes []*common.KeyValue, name string) string {
	for _, a := range attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

const (
	aTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	aParent = "00f067aa0ba902b7"
)

// A claim is one trace, the caller's, with spans for Redis and the database, and without personal data or secrets.
func TestTraceOfAnAccept(t *testing.T) {
	t.Parallel()
	r := listenOTLP(t)
	i := startPushing(t, mariaDB(t)).start("traced", ownRedis(t), "FIRSTTAP_LOG=info",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+r.url, "OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_EXPORTER_OTLP_TIMEOUT=600000", "OTEL_BSP_EXPORT_TIMEOUT=600000", // a span that is sent again would count twice
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	drivers := MakeDriversWithPhones(t, i, "seoul", 2)
	id := MakeDispatch(t, i)
	won := sendWith("POST", i.URL+"/v1/dispatches/"+id+"/accept", drivers[0].Token, `{"round":1}`,
		"traceparent", "00-"+aTrace+"-"+aParent+"-01")
	if !won.Won() {
		t.Fatal(won)
	}
	mustBeTaken(t, i, id, drivers[1])
	// The error's text contains a value.
	for _, want := range []int{201, 409} {
		i.must(want, "POST", "/v1/admin/dispatches", AdminKey, `{"external_id":"an-order-number","region":"seoul","vehicle_class":"45m",
			"site_address":"Seoul 1","work_starts_at":"2040-01-01T00:00:00Z","work_ends_at":"2040-01-01T01:00:00Z",
			"fee":{"amount":1,"currency":"KRW"}}`)
	}
	testkit.Eventually(t, "the pushes are sent", func() bool { return strings.Contains(r.text(), "/projects/traced/messages:send") })
	testkit.Eventually(t, "the trace is there", func() bool {
		return slices.ContainsFunc(r.of(aTrace), func(s *otlp.Span) bool { return s.Kind == otlp.Span_SPAN_KIND_SERVER })
	})
	must := []string{callOfClaim, "firsttap", "deployment.environment.name", "INSERT INTO", "error.type"}
	// An instance that ends waits only 2 s for the collector.
	testkit.Eventually(t, "every span is there", func() bool {
		all := r.text()
		return !slices.ContainsFunc(must, func(s string) bool { return !strings.Contains(all, s) })
	})
	i.endBy(syscall.SIGTERM)

	spans := r.of(aTrace)
	server := spans[0]
	if server.Name != "POST /v1/dispatches/:id/accept" || hex.EncodeToString(server.ParentSpanId) != aParent ||
		attributeOf(server.Attributes, "http.route") != "/v1/dispatches/:id/accept" ||
		attributeOf(server.Attributes, "firsttap.request_id") != won.header.Get("X-Request-Id") {
		t.Errorf("the request is %s", prototext.Format(server))
	}
	asked := map[string][]string{}
	for _, s := range spans[1:] {
		if !bytes.Equal(s.ParentSpanId, server.SpanId) || s.Kind != otlp.Span_SPAN_KIND_CLIENT {
			t.Errorf("its query's span is not its child: %s", prototext.Format(s))
		}
		system := attributeOf(s.Attributes, "db.system.name")
		asked[system] = append(asked[system], attributeOf(s.Attributes, "db.operation.name"))
	}
	if got, want := asked["redis"], []string{"set", "evalsha"}; !slices.Equal(got[:min(len(got), 2)], want) {
		t.Errorf("of redis it asked %v", got)
	}
	if got, want := asked["mysql"], []string{"select", "call"}; !slices.Equal(got, want) {
		t.Errorf("of the database it asked %v, want %v", got, want)
	}
	if !strings.Contains(i.log.String(), `"trace_id":"`+aTrace+`"`) {
		t.Errorf("no line of the log names the trace:\n%s", i.log)
	}
	// The phone numbers begin with 0100000000 as people in Korea dial them. A time in nanoseconds may contain fewer of these digits by chance.
	r.keepsOut(t, []string{
		drivers[0].Token, drivers[1].Token, AdminKey, pushToken(drivers[0]), "+8210", "8210000000", "0100000000", won.Claim.ID, "Bearer", "a-secret-for",
		drivers[0].ID, "Seoul 1", "an-order-number",
	})
}

// keepsOut checks that nothing that was received contains any of mustNot.
func (r *receiver) keepsOut(t *testing.T, mustNot []string) {
	t.Helper()
	all := r.text()
	for _, s := range mustNot {
		if at := strings.Index(all, s); at >= 0 {
			t.Errorf("%q gets out: ...%s...", s, all[max(0, at-200):min(len(all), at+50)])
		}
	}
}

// The collector may hang or be gone: requests are answered as usual, and shutdown is not delayed.
func TestTracesAreNotTaken(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangs.Close() })
	for name, addr := range map[string]string{"hangs": hangs.Addr().String(), "is gone": testkit.FreeAddress(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Neither a request nor the end can wait for the exporter: it gives up after an hour.
			i := Start(t, ownFile(t), "OTEL_EXPORTER_OTLP_ENDPOINT"+"=http://"+addr,
				"OTEL_EXPORTER_OTLP_TIMEOUT=3600000", "OTEL_BSP_EXPORT_TIMEOUT=3600000",
				"OTEL_BSP_SCHEDULE_DELAY=10", "OTEL_BSP_MAX_QUEUE_SIZE=16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=8")
			d, id := MakeDrivers(t, i, 1)[0], MakeDispatch(t, i)
			for range 200 {
				mustWin(t, i, id, d, 1)
			}
			i.endBy(syscall.SIGTERM)
		})
	}
}

// Without an endpoint, or with traces turned off, no tracing runs.
func TestNoTraces(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"not asked for": {},
		"turned off":    {"OTEL_EXPORTER_OTLP_ENDPOINT" + "=http://127.0.0.1:1", "OTEL_SDK_DISABLED" + "=true"},
		"no exporter":   {"OTEL_EXPORTER_OTLP_ENDPOINT" + "=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER" + "=none"},
		"asked for":     {"OTEL_EXPORTER_OTLP_ENDPOINT" + "=http://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := testkit.FreeAddress(t)
			Start(t, append(set, "FIRSTTAP_OPS_ADDR="+ops, ownFile(t))...)
			var running Response
			testkit.Eventually(t, "the operations are served", func() bool {
				running = send("GET", "http://"+ops+"/debug/pprof/goroutine?debug=2", "", "")
				return running.status == 200
			})
			if strings.Contains(running.body, "opentelemetry") != (name == "asked for") {
				t.Errorf("an exporter runs: %t", strings.Contains(running.body, "opentelemetry"))
			}
		})
	}
}
