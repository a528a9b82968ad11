# Stand-ins for images that compose.yaml names: the same programs over the base of ccpipe's images, with
# the wget that the health checks of compose.yaml run.
FROM debian:trixie-slim AS base
RUN apt-get update && apt-get install --yes --no-install-recommends wget

FROM base AS nats
COPY nats-server /usr/local/bin/

FROM base AS victoria-metrics
COPY victoria-metrics /usr/local/bin/
ENTRYPOINT ["victoria-metrics"]
