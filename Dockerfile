FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/firsttap . && mkdir /out/data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/firsttap /firsttap
# The service writes only SQLite's files and generated keys, and only here: mount a volume to keep them. With MySQL it writes nothing.
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
EXPOSE 8080
ENTRYPOINT ["/firsttap"]
CMD ["serve"]
