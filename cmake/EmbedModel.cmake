# lily_embed_model(target directory): links the files of a checkpoint directory into a target, as the table that
# embedded_model_files() returns. Works for any number of shards and for none (an empty table).
function(lily_embed_model target directory)
  file(GLOB files CONFIGURE_DEPENDS
    ${directory}/config.json ${directory}/generation_config.json ${directory}/tokenizer.json
    ${directory}/tokenizer_config.json ${directory}/chat_template.jinja
    ${directory}/model.safetensors.index.json ${directory}/model*.safetensors)
  list(SORT files)
  set(blobs "")
  set(table "")
  set(number 0)
  foreach(file ${files})
    get_filename_component(name ${file} NAME)
    string(APPEND blobs "LILY_EMBED(${number}, \"${file}\")\n")
    string(APPEND table "    LILY_ENTRY(${number}, \"${name}\"),\n")
    math(EXPR number "${number} + 1")
  endforeach()
  set(LILY_EMBED_BLOBS "${blobs}")
  set(LILY_EMBED_TABLE "${table}")
  set(LILY_EMBED_COUNT ${number})
  set(source ${CMAKE_BINARY_DIR}/generated/embedded_model.cpp)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded_model.cpp.in ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${source})
endfunction()
