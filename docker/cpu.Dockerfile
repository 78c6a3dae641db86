# CPU image: docker build -f docker/cpu.Dockerfile -t staffel:cpu .
# Run:       docker run --rm -p 8000:8000 -v /path/to/models:/models:ro staffel:cpu serve /models/MODEL.gguf
ARG BASE=debian:12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY scripts/install_dependencies.sh scripts/
RUN bash scripts/install_dependencies.sh
COPY . .
RUN cmake --preset cpu -DSTAFFEL_WERROR=OFF -DSTAFFEL_BUILD_TESTS=OFF -DSTAFFEL_BUILD_BENCHMARKS=OFF \
 && cmake --build build --target staffel \
 && strip build/staffel \
 # The shared libraries that the binary needs beyond libc, by path, for the final image.
 && mkdir /libs && ldd build/staffel | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -I{} cp -L {} /libs/

FROM ${BASE}
COPY --from=build /libs/ /usr/lib/staffel/
COPY --from=build /src/build/staffel /usr/bin/staffel
ENV LD_LIBRARY_PATH=/usr/lib/staffel
RUN useradd --system --no-create-home --uid 65532 staffel
USER 65532
EXPOSE 8000
ENTRYPOINT ["/usr/bin/staffel"]
CMD ["--help"]
